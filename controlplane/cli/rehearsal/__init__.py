"""Rehearse failures of a user's own script, and say whether its training comes out the same."""
