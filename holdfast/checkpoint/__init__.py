"""Checkpoints. Imports nothing here: the ranks load parts of this package (see arena.py, layout.py)."""
