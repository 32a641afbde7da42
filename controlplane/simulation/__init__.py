"""What-if: the real decision core driven through days of failures by a virtual clock.

May import `controlplane.core`, `controlplane.analysis` and `agent.core`. Reads no clock of the machine and no
file; chance comes from a seed."""
