"""Pure analysis: numbers in, findings out. Its rooms are still to be built."""
