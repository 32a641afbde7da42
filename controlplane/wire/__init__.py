"""The wire contract: generated stubs, and the codec between them and the model."""
