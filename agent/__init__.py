"""Run beside every node of a training job: watch its ranks, keep their snapshots, obey the leader."""
