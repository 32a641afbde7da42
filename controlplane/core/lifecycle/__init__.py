"""Drive each job from phase to phase, from submission to its end."""
