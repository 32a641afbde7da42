"""Form the process groups of a generation in a living process, break them, and dissolve them."""
