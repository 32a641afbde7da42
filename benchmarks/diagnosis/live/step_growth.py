"""Count false alarms of the watch of step times on healthy jobs, and how soon it finds steps that grow.

`python -m benchmarks.diagnosis.live.step_growth --seeds 20 --days 7` prints a table in Markdown. A row every
10 s; the noise of a row is `--share` of a step, of the families of `benchmarks.diagnosis.metrics`. With
`--data`, it is the wait for samples, usually 2 % of a step, that has the noise, and grows."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.diagnosis.metrics import BOUND, FAMILIES, PER_DAY
from controlplane.analysis.live.resources.step_growth import StepGrowth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.robust import Floats

STEP_S, ROW_S = 2.0, 10.0
WORK_S = 0.98 * STEP_S
PER_MINUTE = 6


def healthy(family: str, seed: int, days: float, share: float) -> Floats:
    """The step of each row. The noise of a family is of minutes; rows within a minute scatter as much again,
    independently."""
    chance = np.random.default_rng(seed)
    minutes = FAMILIES[family](chance, int(days * PER_DAY))
    rows = np.repeat(minutes, PER_MINUTE) + chance.normal(size=len(minutes) * PER_MINUTE)
    return np.maximum(STEP_S * (1.0 + share * rows), 0.2 * STEP_S)


def alarms_s(steps_s: Iterable[float], *, data: bool = False) -> list[float]:
    """When (s) steps begin to count as grown. `data`: all that exceeds WORK_S is a wait for samples, and only
    these waits count."""
    pace, found, before = StepGrowth(), [], False
    watch = pace.waited if data else pace.step
    for at, step_s in enumerate(steps_s):
        waited_s = max(0.0, step_s - WORK_S) if data else 0.0
        pace.take(at * ROW_S, WORK_S + waited_s if data else step_s, {"data": waited_s})
        now = watch.grown is not None
        if now and not before:
            found.append(at * ROW_S)
        before = now
    return found


def found_after_s(family: str, seed: int, share: float, per_hour: float, *, data: bool = False) -> float:
    """How long after its beginning, after 27 hours, a steady growth is seen; NaN: not in a day, or before."""
    steps_s = healthy(family, seed, 51 / 24, share)
    begun = int(27 * 3600 / ROW_S)
    grown = np.maximum(np.arange(len(steps_s)) - begun, 0) * ROW_S / 3600 * per_hour
    seen = alarms_s((steps_s + STEP_S * grown).tolist(), data=data)
    return seen[0] - begun * ROW_S if seen and seen[0] > begun * ROW_S else math.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--data", action="store_true", help="the wait for samples, not the step")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    print(
        "| noise | days watched | false alarms | per day, at most (95 %) | 3 % per hour seen after, hours |"
    )
    print("|---|---|---|---|---|")
    for family in FAMILIES:
        days = len(seeds) * (asked.days - 1)
        quiet = (healthy(family, seed, asked.days, asked.share).tolist() for seed in seeds)
        count = sum(len(alarms_s(steps_s, data=asked.data)) for steps_s in quiet)
        most = (BOUND if not count else count + 1.0 + 1.645 * math.sqrt(count + 0.25)) / days
        chosen = list(seeds)[:10]
        after = [found_after_s(family, each, asked.share, 0.03, data=asked.data) / 3600 for each in chosen]
        missed = sum(map(math.isnan, after))
        middle = float(np.nanmedian(after)) if missed < len(after) else math.nan
        shown = f"{middle:.2g} ({missed} of {len(after)} missed)"
        print(f"| {family} | {days:.0f} | {count} | {most:.2g} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
