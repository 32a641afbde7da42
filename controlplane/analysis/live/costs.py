"""Say how much time a job lost within the steps of one window, by cause.

In a synchronous job a step takes as long as the rank that is busy longest, so only that rank's time counts:
it waits for nobody, and everybody waits for it. Of its time in a window, `data` is what it waited for
samples; `compile`, `evaluate` and `checkpoint` are what its script declares (`session.phase`); `slow_rank`
is by how much the rest of its own work exceeds that of a typical rank of its stage: the step less the ideal
step, in the words of `anatomy`, without data and snapshots, which have causes of their own. The parts never
exceed the window's steps. Sums over windows are at least what is lost: within a window, sums hide that
another rank may be the slowest in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live.anatomy import BUSY
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.readings import OWN

if TYPE_CHECKING:
    from controlplane.analysis.live.table import RankTable

DATA, SLOW_RANK = "data", "slow_rank"
DECLARED = ("compile", "evaluate", "checkpoint")
CAUSES = (DATA, *DECLARED, SLOW_RANK)


def lost_s(table: RankTable) -> dict[str, float]:
    """Seconds that the job lost in this window, by cause; {} where no rank is judged."""
    values = table.values
    busy_s = np.sum([values[f"{name}_s"] for name in BUSY], axis=0)
    if not (known := ~np.isnan(busy_s)).any():
        return {}
    worst = int(np.argmax(np.where(known, busy_s / values["steps"], -np.inf)))
    left_s = min(float(values["wall_s"][worst]), low_median(values["wall_s"]))
    own_s = np.sum([values[f"{name}_s"] for name in OWN], axis=0) / values["steps"]
    for name in DECLARED:
        own_s = own_s - values[f"{name}_s"] / values["steps"]
    peers = next(ranks for stage, ranks in table.seats.stages if stage == table.seats.stage[worst])
    excess_s = max(0.0, float(own_s[worst]) - low_median(own_s[peers])) * float(values["steps"][worst])
    wanted = {name: float(values[f"{name}_s"][worst]) for name in (DATA, *DECLARED)} | {SLOW_RANK: excess_s}
    found = {}
    for name, spent_s in wanted.items():
        if (taken_s := min(spent_s, left_s)) > 0:
            found[name] = taken_s
            left_s -= taken_s
    return found
