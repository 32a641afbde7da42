"""Serve the status page: an HTTP listener, the picture that the page shows, and its live updates."""
