"""Feed damaged input to every reader of files and messages that others wrote. `python -m tests.security.fuzz
--help`."""
