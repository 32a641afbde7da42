"""Predict which nodes fail next, from the history of their faults. Pure."""
