"""Count false alarms of the watch of metrics on healthy noise, and how soon it finds drifts that are planted.

`python -m benchmarks.diagnosis.metrics --seeds 60 --days 30` prints a table in Markdown."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.trends.watching import MetricWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.analysis.robust import Floats

LEVEL = 50.0
DAY_S = 86_400.0
PER_DAY = 1440
"""Samples a day: one a minute."""
LEARN = 256
"""Samples that a watch learns from, over a day at least."""
BOUND = -math.log(0.05)
"""Without any false alarm, their true number in as much time is less than this with 95 % (Poisson)."""


def gaussian(chance: np.random.Generator, count: int) -> Floats:
    """Independent values."""
    return chance.normal(size=count)


def heavy_tail(chance: np.random.Generator, count: int) -> Floats:
    """Independent values with wild ones among them: Student's t with two degrees of freedom."""
    return chance.standard_t(2, size=count)


def correlated(ratio: float) -> Callable[[np.random.Generator, int], Floats]:
    """Values that follow the one before: AR(1)."""

    def make(chance: np.random.Generator, count: int) -> Floats:
        noise = chance.normal(size=count) * math.sqrt(1.0 - ratio * ratio)
        found, value = np.empty(count), float(chance.normal())
        for at, each in enumerate(noise.tolist()):
            value = ratio * value + each
            found[at] = value
        return found

    return make


def daily(chance: np.random.Generator, count: int) -> Floats:
    """A daily rhythm of three times the noise."""
    phase = chance.uniform(0.0, 2.0 * math.pi)
    wave = 3.0 * np.sin(2.0 * math.pi * np.arange(count) / PER_DAY + phase)
    return wave + chance.normal(size=count)


def steps(chance: np.random.Generator, count: int) -> Floats:
    """Several levels that take turns, each for two hours on average, as phases of a job do."""
    found, at = np.empty(count), 0
    while at < count:
        upto = at + int(chance.exponential(PER_DAY / 12)) + 1
        found[at:upto] = chance.choice((0.0, 0.0, 6.0, 12.0))
        at = upto
    return found + chance.normal(size=count)


FAMILIES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "Gaussian": gaussian,
    "heavy tail (t, 2 degrees of freedom)": heavy_tail,
    "AR(1), 0.9": correlated(0.9),
    "AR(1), 0.99": correlated(0.99),
    "daily rhythm of 3 times the noise": daily,
    "levels that take turns": steps,
}
"""Healthy noise, with a standard deviation of about 1."""


def alarms(values: Sequence[float], every_s: float, watch: MetricWatch) -> list[float]:
    """When (s) changes begin to be seen."""
    found, before = [], False
    for at, value in enumerate(values):
        watch.observe(at * every_s, value)
        if watch.changed and not before:
            found.append(at * every_s)
        before = watch.changed
    return found


def false_alarms(family: str, seed: int, days: int) -> int:
    """The alarms of one healthy metric in so many days, the first of which is learnt from."""
    values = LEVEL + FAMILIES[family](np.random.default_rng(seed), days * PER_DAY)
    return len(alarms(values.tolist(), DAY_S / PER_DAY, MetricWatch(LEARN, DAY_S)))


def drift_found_after_s(family: str, seed: int, per_day: float) -> float:
    """How long after its beginning, on the third day, a drift is seen; NaN: not in nine days, or before."""
    begin, count = 2 * PER_DAY, 11 * PER_DAY
    values = LEVEL + FAMILIES[family](np.random.default_rng(seed), count)
    values[begin:] += per_day / PER_DAY * np.arange(count - begin)
    seen = alarms(values.tolist(), DAY_S / PER_DAY, MetricWatch(LEARN, DAY_S))
    after_s = seen[0] - begin * DAY_S / PER_DAY if seen else math.nan
    return after_s if after_s > 0 else math.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--days", type=int, default=30)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    print("| noise | days watched | false alarms | per day, at most (95 %) | drift seen after, hours |")
    print("|---|---|---|---|---|")
    for family in FAMILIES:
        days = len(seeds) * (asked.days - 1)
        count = sum(false_alarms(family, seed, asked.days) for seed in seeds)
        most = BOUND if not count else count + 2.0 * math.sqrt(count) + 2.0
        found = [drift_found_after_s(family, seed, 10.0) / 3600.0 for seed in seeds[: len(seeds) // 4]]
        hours = f"{np.nanmedian(found):.0f}" if not all(map(math.isnan, found)) else "not in nine days"
        missed = sum(map(math.isnan, found))
        print(
            f"| {family} | {days} | {count} | {most / days:.4f} | {hours} ({missed} of {len(found)} missed) |"
        )


if __name__ == "__main__":
    main()
