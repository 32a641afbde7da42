"""Enter a generation and leave it: barrier, process groups, the state of the first step, what is clean."""
