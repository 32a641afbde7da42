"""Enter a generation and leave it: barrier, process groups, restored state, steps, snapshots."""
