"""The tests: they run the real parts and cause real failures."""
