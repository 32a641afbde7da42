"""Deal samples to steps, weight uneven shares, and write down what was consumed."""
