"""Define what is on a storage: names, manifests, parts, chunks, and how each is verified. No I/O."""
