"""Report for a rank: the script's numbers, and losses that are not finite."""
