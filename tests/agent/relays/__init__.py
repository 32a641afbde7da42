"""The agent passes heartbeats on, and sends its own through others."""
