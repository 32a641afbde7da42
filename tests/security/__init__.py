"""Test that strangers stay out: transport, callers, roles, limits, secrets, sockets, fuzzing."""
