"""Know where a generation's state may come from, and whose word each copy rests on."""
