"""Say which nodes could take a job's ranks, choose among them, and watch processes that do not start."""
