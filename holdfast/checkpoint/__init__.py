"""Save, load and verify checkpoints. Imports nothing here: ranks and agents load parts of this package."""
