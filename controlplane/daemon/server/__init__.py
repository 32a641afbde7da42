"""Serve agents, and the tools that people use, over gRPC."""
