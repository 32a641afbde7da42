"""Decide what an agent does: a pure core, events in and effects out, without clock, chance or I/O.

`agent.daemon` tells it what launcher, ranks, leader and sensors report, and carries out its effects.
`tests/sim` does the same on a virtual clock, with this very code."""
