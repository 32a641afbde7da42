"""Turn numbers into findings. Pure: no clock, no chance, no file."""
