"""Give every rank the state of a generation, and prove equal what is claimed to be equal."""
