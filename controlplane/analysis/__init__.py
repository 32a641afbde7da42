"""Turn numbers into findings: where node-time went, and which checkpoint interval costs least. Pure."""
