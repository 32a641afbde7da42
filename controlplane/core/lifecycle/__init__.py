"""Begin and end: a new leader takes over, a job comes to its end."""
