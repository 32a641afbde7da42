"""Run whole clusters in network namespaces, disturb them at random from a seed, and judge what must hold."""
