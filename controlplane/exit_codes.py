"""The codes with which a daemon ends where who started it has to know why."""

REFUSED = 78
"""Every coordinator refuses this agent for good: to start it again changes nothing (EX_CONFIG)."""
