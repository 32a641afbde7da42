"""The proof: real parts, real failures."""
