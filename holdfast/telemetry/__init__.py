"""What a rank tells of itself: its progress, the script's numbers, losses that are not finite."""
