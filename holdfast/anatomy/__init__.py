"""Measure how a rank spends the time of its steps: data, forward, backward, waits, optimizer, snapshot."""
