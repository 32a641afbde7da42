"""Find in the logs of all ranks which failure came first, what followed from it, and whether to restart."""
