"""Measure one coordinator with ten thousand real streams of agents (`python -m benchmarks.scale`)."""
