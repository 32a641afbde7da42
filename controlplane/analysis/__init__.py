"""Pure analysis: numbers in, findings out. No clock, no chance, no file."""
