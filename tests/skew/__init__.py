"""Test one version beside the next, as in a rolling upgrade: with coordinators and agents of the version
before."""
