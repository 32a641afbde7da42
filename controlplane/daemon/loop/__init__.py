"""Step the core with each event in order, and have its effects carried out."""
