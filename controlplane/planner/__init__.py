"""Plan how a model is spread over devices: shapes in, ranked layouts with their reasons out. Pure."""
