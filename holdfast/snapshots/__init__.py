"""Copy a rank's state into its arena and back, when a snapshot or a checkpoint is due."""
