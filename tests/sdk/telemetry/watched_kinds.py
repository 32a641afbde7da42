"""The ways of training that watching.py tries."""

KINDS = ("plain", "accumulated", "scaled", "clipped", "unused", "tied", "sparse", "fsdp")
STEPS, EVERY = 6, 2
"""Steps of each, and how often its gradients are measured."""
BAD = 7
"""The first step in which a module gives NaN, where that is tried."""
