"""Change a job's places while it lives: shrink, grow, drain, pause, and keep spares."""
