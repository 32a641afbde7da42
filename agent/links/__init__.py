"""Measure the links from this node to its peers, when the leader asks, and for checks of a node."""
