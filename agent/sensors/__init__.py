"""Sensors of a node's devices, and what the leader is told of what they show."""
