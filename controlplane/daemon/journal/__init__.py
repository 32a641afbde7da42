"""Keep what happened, in order, in files that people and replay can read."""
