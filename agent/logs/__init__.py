"""Keep the logs of a node's ranks within bounds, and send them to those who ask."""
