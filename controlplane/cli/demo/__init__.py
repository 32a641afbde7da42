"""The demonstration: training is hurt on purpose, and the result compared with an undisturbed run."""
