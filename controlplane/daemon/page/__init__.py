"""The status page: one listener over HTTP, the picture that it shows, and how that stays live."""
