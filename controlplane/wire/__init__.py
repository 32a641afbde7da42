"""Define the wire contract: generated stubs, and the codec between them and the core's records."""
