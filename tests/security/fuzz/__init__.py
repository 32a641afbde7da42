"""Mutated input for everything that reads what others wrote. `python -m tests.security.fuzz --help`."""
