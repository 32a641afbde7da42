"""`holdfast check`: measure a node before ranks are given to it."""
