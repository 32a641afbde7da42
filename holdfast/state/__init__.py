"""Hold a rank's training state: tracked objects, their shards, modes, digests and random numbers."""
