"""Test the session in real ranks, with a small node of the tests' own that speaks the rank server's
protocol."""
