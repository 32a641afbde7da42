"""Diagnose a job from how long each worker's iterations took."""
