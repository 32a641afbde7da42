"""Detectors of gradients and losses that are wrong."""
