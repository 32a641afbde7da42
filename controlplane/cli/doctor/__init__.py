"""`holdfast doctor`: read what a job has recorded, and say what is wrong, whose doing it is, what it costs."""
