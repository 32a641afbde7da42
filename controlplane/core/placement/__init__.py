"""Place ranks: which nodes could take a job's ranks, which do, and processes that do not start."""
