"""One version beside the next: what a rolling upgrade needs, with the agents of the version before."""
