"""Elect a leader, and hold everything that lives and ends with its term."""
