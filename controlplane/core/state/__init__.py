"""Hold what a leader remembers: the cluster, its jobs and their members, and what was sent to whom.

Mutable records without decisions. What must survive the leader is in etcd; the rest is learned again from
the heartbeats of the agents."""
