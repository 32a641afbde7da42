"""What the coordinator asks of Kubernetes: pods taken away, hosts watched, events told. Off by default."""
