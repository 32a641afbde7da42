"""Define the frozen records that the core speaks in: events, effects, what etcd keeps, fixed words."""
