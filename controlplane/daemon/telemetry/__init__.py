"""Turn events and effects into metrics, alerts and traces."""
