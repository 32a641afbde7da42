"""Pure analysis: numbers in, findings out. Its first rooms (trends, stragglers, stalls) are still to be built."""
