"""Compute for how long ranks waited for a CPU while they worked, from the kernel's counts.

The kernel counts how long the main thread of a rank ran, and how long it was ready to run and did not: other
processes had the CPUs, or the quota of its cgroup was used up. These counts cover a span of time, work covers
whole steps; so both are taken as rates. A rank is ready to run only while it works: the wait belongs to its
own work as far as the CPU time does. It cannot be longer than the time in which that work was off the CPU:
ranks measure their CPU time in forward, backward and optimizer, and what ran beside that counts as work
between these phases, as far as there was time for it. A process that is stopped, or waits for a disk or a
device, is off the CPU too, and is not ready: that time stays its own.

Where devices compute, a wait for the CPU may cost nothing, so there it is not looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.analysis.live.table import RankTable
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class CpuWaits:
    """For each rank, s per step; NaN: not known, or CPU time says nothing there."""

    queued_s: Floats  # in its own work it was ready to run, and did not
    throttled_s: Floats  # of that, because of the quota of its cgroup

    def fair(self, own_s: Floats) -> Floats:
        """Own work without the waits for a CPU, where they are known."""
        return own_s - np.nan_to_num(self.queued_s)


def cpu_waits(table: RankTable, per_step: Mapping[str, Floats], own_s: Floats, before: Floats) -> CpuWaits:
    """The waits of one window. `per_step`: s of each phase, CPU time and the whole step; `own_s`: own work.
    `before`: in which share of that each rank usually was ready to run (NaN: not known): one that is stopped
    is so no more, and that says nothing of devices.

    Counts that no process can have are taken as unknown: more time than was watched, or much less CPU time
    than the rank itself has measured (another process, in another container)."""
    values = table.values
    watched_s, queued_s = values["watched_s"], values["queued_s"]
    with np.errstate(all="ignore"):
        known = (watched_s > 0) & (np.maximum(values["ran_s"], queued_s) <= policy.WHOLE_RATIO * watched_s)
        ran = values["ran_s"] / watched_s
        known &= ran >= policy.COUNTED_RATIO * per_step["cpu"] / per_step["wall"]
        working = (per_step["cpu"] + per_step["other"]) / (ran * per_step["wall"])
        waited_s = queued_s / watched_s * per_step["wall"] * np.minimum(1.0, np.nan_to_num(working, nan=1.0))
        between_s = np.clip(ran * per_step["wall"] - per_step["cpu"], 0.0, per_step["other"])
        ran_s = per_step["cpu"] + np.nan_to_num(between_s)
        waited_s = np.where(known, np.clip(own_s - ran_s, 0.0, waited_s), np.nan)
        ready = np.fmax((ran_s + waited_s) / own_s, before)
        for _, ranks in table.seats.stages:
            if not low_median(ready[ranks]) >= policy.CPU_SHARE:
                waited_s[ranks] = np.nan
        held_s = np.minimum(waited_s, values["throttled_s"] / watched_s * per_step["wall"])
    return CpuWaits(waited_s, np.where(values["cpu_limit"] >= 0.0, held_s, np.nan))
