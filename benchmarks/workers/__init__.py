"""The processes under measurement: each logs what it does as JSON lines with CLOCK_MONOTONIC."""
