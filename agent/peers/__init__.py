"""Keep copies of other nodes' snapshots in memory, and give and fetch them."""
