"""Make histories of faults with known rates, from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BACKGROUND = 0.003
"""Faults per node and day."""
SEQUELS = 0.6
"""Faults that a fault causes on its node, days later: exponential with SEQUEL_DAYS."""
SEQUEL_DAYS = 5.0
REPAIR_DAYS = 0.1


def faults(seed: int, nodes: int, days: float, sequels: float = SEQUELS) -> list[tuple[str, float, float]]:
    """Faults as (node, beginning, end) in days, by beginning; those of one node do not overlap."""
    chance = Random(seed)
    found = []
    for node in range(nodes):
        pending, at = [], 0.0
        while (at := at + chance.expovariate(BACKGROUND)) < days:
            pending.append(at)
        free = 0.0
        while pending:
            pending.sort()
            begin = pending.pop(0)
            if begin < free:
                continue
            free = begin + chance.expovariate(1.0 / REPAIR_DAYS)
            found.append((f"n{node}", begin, free))
            if chance.random() < sequels:
                pending.append(begin + chance.expovariate(1.0 / SEQUEL_DAYS))
    return sorted((each for each in found if each[1] < days), key=lambda each: each[1])


def events(of: list[tuple[str, float, float]], until: float) -> list[dict[str, object]]:
    """The events of faults that have happened by a day, as a trace has them."""
    rows = [(begin, name, "fault_start") for name, begin, _ in of]
    rows += [(end, name, "fault_end") for name, _, end in of]
    return [
        {"node_id": name, "event_time": at, "event_type": kind, "fault_type": {"Class": "GPU"}}
        for at, name, kind in sorted(rows)
        if at <= until
    ]


def as_json(path: Path, of: list[tuple[str, float, float]], until: float = 1e9) -> Path:
    path.write_text(json.dumps(events(of, until)))
    return path
