"""Make up running jobs with planted faults, and score the live detectors on them."""
