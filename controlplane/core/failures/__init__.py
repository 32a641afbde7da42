"""Judge failures: evidence to a verdict, who caused it, and which nodes and devices stay eligible."""
