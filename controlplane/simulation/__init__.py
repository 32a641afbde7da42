"""What-if: the real decision core driven through days of failures by a virtual clock.

May import `controlplane.core` and `controlplane.analysis`; its nodes are a model of costs, docs/simulation.md
says why. Reads no clock of the machine and no file; chance comes from a seed."""
