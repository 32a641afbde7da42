"""Copy a rank's state into its arena, and back."""
