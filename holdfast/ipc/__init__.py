"""Connect ranks, launcher and agent of one node: frames, the progress page, the arena. Standard library
only."""
