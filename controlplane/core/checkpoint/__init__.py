"""Release snapshots, make checkpoints durable, and keep or collect them by the job's retention."""
