"""The demo: kill processes of a training run, and compare the result with an undisturbed run."""
