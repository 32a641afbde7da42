"""Use Kubernetes, if it is allowed to: replace pods, watch hosts, write Events, label the leader."""
