"""Pass heartbeats of other nodes on to the leader, and send this node's own through another agent.

May not decide anything: when to trust a relay is `agent/deciding/beat_route.py`, what a relay keeps
`agent/deciding/beat_collection.py`. Knows neither ranks nor copies."""
