"""Diagnose running jobs in the leader: collect reports, run the detectors, keep what they find."""
