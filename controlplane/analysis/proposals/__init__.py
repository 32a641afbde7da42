"""Propose settings of a running job, from what was measured of it."""
