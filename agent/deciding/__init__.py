"""What an agent decides: the second pure core. Events in, effects out; no clock, no chance, no I/O.

The shell (`agent.daemon.node` and the rooms around it) tells what launcher, ranks, leader and sensors say,
and does what comes back. `tests/sim` does the same on a virtual clock, with this very code."""
