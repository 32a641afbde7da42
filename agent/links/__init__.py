"""Measure the links from this node to its peers, when the leader asks."""
