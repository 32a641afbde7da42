"""What ranks, launcher and agent say to each other, and the progress page. Standard library only."""
