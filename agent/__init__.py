"""Holdfast beside every node: the agent, the launcher, the checkpoints, and the SDK of a user's script."""
