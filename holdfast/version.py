"""Define the version of all of Holdfast."""

__version__ = "0.1.0"

RANKS_SPEAK = 4
"""The version of what ranks send each other in a group, and of how they derive state and samples from a step.

Raise it with every such change: ranks with different numbers, or of different releases, do not train
together. Version 1 was not compared."""
