"""Checkpoints. Imports nothing here: ranks and agents load parts of this package."""
