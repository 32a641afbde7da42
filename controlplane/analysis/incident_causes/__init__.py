"""Find the first cause of an incident of a running job, by the ends of its processes."""
