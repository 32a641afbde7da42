"""Remember findings over windows: when each began, whether it still holds, and whether people were told."""
