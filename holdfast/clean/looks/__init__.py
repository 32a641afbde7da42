"""What tells a value from what it becomes, and what objects of other packages hold of a script."""
