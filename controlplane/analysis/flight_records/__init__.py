"""Say from torch's flight recorder dumps of a job which ranks hold up the others, and which only wait."""
