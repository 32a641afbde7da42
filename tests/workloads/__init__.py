"""Every workload of the field, killed in each phase and compared with the same model in plain torch."""
