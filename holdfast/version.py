"""Define the version of all of Holdfast."""

__version__ = "0.1.0"

RANKS_SPEAK = 2
"""Raised by a change of what ranks say to each other in a group, or of what they make of one state and one
step: ranks of two numbers, or of two versions, do not train together. 1 was not told."""
