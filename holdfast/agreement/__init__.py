"""Give every rank the state that a generation begins with, and prove equal what must be equal."""
