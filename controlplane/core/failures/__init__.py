"""Judge failures: evidence to a verdict, whose doing it was, and which nodes and devices stay eligible."""
