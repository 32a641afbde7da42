"""Say how long ranks wait for samples, and whether they make them themselves. Pure.

A DataLoader without workers makes a batch in the training process: its main thread computes while the step
waits for samples. With workers it sleeps. The kernel says how long the main thread ran, and how long
it was ready to and had no CPU; how long it ran in forward, backward and optimizer, the rank has measured.
What is left it was in the other phases: at least what these cannot hold, and at most all of it, while samples
were waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy

if TYPE_CHECKING:
    from controlplane.analysis.live.table import RankTable

BESIDE = ("communication", "snapshot", "other")
"""Phases beside `data` in which the main thread may run, and the rank measures no CPU time."""


@dataclass(frozen=True, slots=True)
class SampleWaits:
    """How long the rank waits for samples that waits longest, in s per step of one window.

    `made_least_s`, `made_most_s`: of that its main thread ran on a CPU, or was ready to; None: not known."""

    rank: int
    node: str
    step_s: float
    data_s: float
    typical_data_s: float  # of the typical rank
    made_least_s: float | None
    made_most_s: float | None
    no_cpu_ratio: (
        float | None
    )  # of the time in which its main thread could run it had no CPU; None: not known
    cpu_limit: float | None  # how many CPUs its cgroup may use; 0: no limit; None: not known
    ranks_here: int  # of the job on its node


def sample_waits(table: RankTable) -> SampleWaits | None:
    """The waits in the window of this table; None: no rank is judged."""
    values = table.values
    with np.errstate(all="ignore"):
        data_s = values["data_s"] / values["steps"]
    known = ~np.isnan(data_s)
    if not known.any():
        return None
    rank = int(np.nanargmax(data_s))
    least_s, most_s = _made(table, rank)
    limit = float(values["cpu_limit"][rank])
    return SampleWaits(
        rank,
        table.seats.node_of(rank),
        float(values["wall_s"][rank] / values["steps"][rank]),
        float(data_s[rank]),
        float(np.median(data_s[known])),
        least_s,
        most_s,
        _no_cpu(float(values["ran_s"][rank]), float(values["queued_s"][rank])),
        limit if limit >= 0 else None,
        int((table.seats.node == table.seats.node[rank]).sum()),
    )


def _no_cpu(ran_s: float, queued_s: float) -> float | None:
    return queued_s / (ran_s + queued_s) if ran_s + queued_s > 0 else None


def _made(table: RankTable, rank: int) -> tuple[float | None, float | None]:
    """For how long (s per step) the main thread ran, or was ready to, while samples were waited for: at
    least, and at most."""
    row = {name: float(column[rank]) for name, column in table.values.items()}
    watched_s, steps = row["watched_s"], row["steps"]
    if watched_s <= 0 or row["ran_s"] > policy.WHOLE_RATIO * watched_s:
        return None, None  # not counted, or counts that no thread can have
    ran_s, queued_s = (row[name] / watched_s * row["wall_s"] for name in ("ran_s", "queued_s"))
    beside_s = sum(row[f"{name}_s"] for name in BESIDE)
    own_s = sum(row[f"{name}_s"] for name in ("forward", "backward", "optimizer"))
    least_s = max(ran_s - row["cpu_s"], ran_s + queued_s - own_s) - beside_s
    most_s = ran_s + queued_s - row["cpu_s"]
    data_s = row["data_s"]
    found = [min(data_s, max(0.0, each)) / steps for each in (least_s, most_s)]
    return found[0], found[1]
