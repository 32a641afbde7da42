"""Join a node's parts into one process: its core, the coordinator, the launcher, metrics."""
