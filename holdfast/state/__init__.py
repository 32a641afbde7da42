"""What is kept of a rank's training state, and how it is copied, put back and asked for."""
