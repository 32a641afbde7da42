"""Measure what a node can do before ranks are given to it: compute, memory, disk, clock, links."""
