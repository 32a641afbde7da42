"""Choose nodes for a job's ranks, and have them launched."""
