"""The parts of `python -m benchmarks.checkpoint`: state, limits of the machine, peers, Holdfast."""
