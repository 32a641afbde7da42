"""What an elastic function does again each time it is called, before its steps."""
