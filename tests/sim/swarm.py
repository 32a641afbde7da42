"""Swarm testing: each schedule leaves some faults out, and draws others very often.

All faults at once hide each other: a bug that needs six kills in a row is never found where every second
fault is a restart."""

from __future__ import annotations

import random

from tests.sim.faults import EVERY
from tests.sim.world import Options

SIZES = (1, 2, 4, 8)
"""The number of the job's nodes, in turns; spare ones are added."""

ELASTIC_CHANCE = 0.75
HEAVY = (1, 1, 2, 8)
"""How often a fault is drawn, relative to the others of the schedule."""


def swarm(seed: int, nodes: int | None = None, plant: str = "") -> Options:
    """The schedule of this seed."""
    rng = random.Random(f"swarm {seed}")
    nodes = nodes or SIZES[seed % len(SIZES)]
    faults = tuple(name for name in EVERY if rng.random() < 0.5) or ("kill",)
    return Options(
        seed=seed,
        nodes=nodes,
        fault_s=rng.choice((8.0, 15.0, 25.0)),
        gap_s=rng.choice((0.7, 1.5, 3.0, 6.0)),
        steps=rng.choice((20, 30, 50)),
        faults=faults,
        weights=tuple(rng.choice(HEAVY) for _ in faults),
        elastic=nodes > 1 and rng.random() < ELASTIC_CHANCE,
        moods=True,
        tails=bool(seed // 2 % 2),
        plant=plant,
    )
