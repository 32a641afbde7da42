"""Simulate days of failures with the real decision core, on a virtual clock.

May import `controlplane.core` and `controlplane.analysis`. Its nodes are a model of costs, not real agents;
docs/simulation.md says why. It reads neither the machine's clock nor files, and chance comes from a seed."""
