"""Put content on any fsspec storage once, read it back, and never overwrite it."""
