"""Hold what a leader remembers: the cluster, its jobs and their members, and what was sent to whom."""
