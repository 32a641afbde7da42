"""Release snapshots, make checkpoints durable, and keep or collect them."""
