"""Hold a rank's training state: the tracked objects, their shards, modes, digests and random numbers."""
