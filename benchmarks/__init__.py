"""Measure what Holdfast costs and gains, against bare torch and its peers in one run. See README.md."""
