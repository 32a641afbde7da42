"""The version of all of Holdfast."""

__version__ = "0.1.0"
