"""Serve this node's ranks: their socket, their environment, their arenas and files."""
