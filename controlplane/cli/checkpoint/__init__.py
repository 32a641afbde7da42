"""`holdfast checkpoint`: what lies on a storage, read without any daemon."""
