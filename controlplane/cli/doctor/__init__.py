"""`holdfast doctor`: read what a job recorded; say what is wrong, whose doing it is, and what it costs."""
