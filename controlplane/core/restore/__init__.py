"""Find and choose the copies of state that a generation starts from, and decide which copies to trust."""
