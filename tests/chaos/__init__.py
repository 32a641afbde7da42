"""Whole clusters in network namespaces, disturbed at random from a seed, and judged by what must not be."""
