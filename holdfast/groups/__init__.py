"""Form the process groups of a generation in a living process, break and dissolve them."""
