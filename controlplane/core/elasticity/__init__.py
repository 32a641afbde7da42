"""Change the places of a living job: shrink, grow, drain and pause it, and keep its spares."""
