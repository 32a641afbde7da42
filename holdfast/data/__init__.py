"""Deal samples to steps, weight uneven shares, and record what was consumed."""
