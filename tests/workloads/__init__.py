"""Kill every workload in each phase, and compare it with the same model in plain torch."""
