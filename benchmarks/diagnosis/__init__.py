"""Plant faults in made-up recordings, and count which of them the detectors name."""
