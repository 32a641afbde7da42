"""Serve agents and people's tools over gRPC."""
