"""Nobody in who does not belong: transport, callers, roles, limits, secrets, sockets, fuzz."""
