"""Read what jobs have recorded: check and bound it, and name file, row and column of what is wrong."""
