"""Carry out the leader's orders about snapshots and checkpoints, from a queue."""
