"""Decide what an agent does: a pure core, events in and effects out, without clock, chance or I/O.

`agent.daemon` feeds it what the launcher, ranks, leader and sensors report, and carries out its effects.
`tests/sim` runs the same code on a virtual clock."""
