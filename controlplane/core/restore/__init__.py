"""Choose where a generation's state comes from, and have it brought in place."""
