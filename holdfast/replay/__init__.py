"""Run steps again after replicas of the state differ, to learn whether the script or the hardware did it."""
