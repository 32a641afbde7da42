"""Kills at random instants in one long job, and a watcher that trusts no checkpoint."""
