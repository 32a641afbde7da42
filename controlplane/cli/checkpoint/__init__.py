"""`holdfast checkpoint`: read, verify, compare, export and delete checkpoints on a storage."""
