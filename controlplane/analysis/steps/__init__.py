"""Replay the recorded steps of a job with other durations. Who is to blame is not judged here."""
