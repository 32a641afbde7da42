"""Decide what happens to jobs: events in, effects out. Pure: no clock, no chance, no I/O."""
