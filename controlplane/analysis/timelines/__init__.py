"""Diagnose a job from the recorded operations of its steps: which part costs what, and whose doing it is."""
