"""Say of any metric whether it left its usual range, how fast it grows, when it reaches a limit. Pure."""
