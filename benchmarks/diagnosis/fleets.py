"""Make up the iteration times of a group of workers, some of them slow on purpose: one group per seed.

This module knows nothing of the detectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Sample = tuple[int, float, float]
"""(worker, time of the iteration, duration in s)"""


@dataclass(frozen=True, slots=True)
class Slow:
    """A worker that takes `times` as long as usual, from `onset` (None: from the start) until `recovery`
    (None: for good)."""

    times: float
    onset: float | None = None
    recovery: float | None = None

    def at(self, time: float) -> float:
        """The factor of its durations at this time."""
        begun = self.onset is None or time >= self.onset
        return self.times if begun and (self.recovery is None or time < self.recovery) else 1.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The samples of all workers, and which workers are slow in them: `slow` names all of these."""

    plant: str
    seed: int
    samples: list[Sample]
    interval: float  # between two iterations of a worker, in units of time
    slow: dict[int, Slow] = field(default_factory=dict)


@dataclass(slots=True)
class _Plan:
    workers: int
    iterations: int
    interval: float
    noise: float
    spikes: float
    steady: float  # sigma of the lasting differences between the workers' speeds
    slow: dict[int, Slow]
    everybody: Callable[[float], float] = lambda time: 1.0
    drift: float = 0.0  # a slow wave through the whole fleet


def _plan(random: Random) -> _Plan:
    return _Plan(
        workers=random.choice((3, 4, 8, 16)),
        iterations=random.randint(80, 600),
        interval=random.choice((1.0, 10.0)),
        noise=random.choice((0.01, 0.03, 0.06)),
        spikes=random.choice((0.0, 0.01, 0.03)),
        steady=random.choice((0.0, 0.02, 0.04)),
        slow={},
        drift=random.choice((0.0, 0.1)),
    )


def _healthy(random: Random) -> _Plan:
    return _plan(random)


def _emerging(random: Random) -> _Plan:
    plan = _plan(random)
    span = plan.iterations * plan.interval
    plan.slow[random.randrange(plan.workers)] = Slow(
        random.uniform(1.4, 3.0), random.uniform(0.1, 0.85) * span
    )
    return plan


def _recovering(random: Random) -> _Plan:
    plan = _plan(random)
    span = plan.iterations * plan.interval
    onset, lasts = random.uniform(0.05, 0.6) * span, max(0.06 * span, 15 * plan.interval)
    recovery = onset + random.uniform(1.0, 4.0) * lasts
    if recovery < 0.95 * span:
        plan.slow[random.randrange(plan.workers)] = Slow(random.uniform(1.4, 3.0), onset, recovery)
    return plan


def _always(random: Random) -> _Plan:
    plan = _plan(random)
    plan.slow[random.randrange(plan.workers)] = Slow(random.uniform(1.4, 2.5))
    return plan


def _everybody(random: Random) -> _Plan:
    plan = _plan(random)
    onset, times = random.uniform(0.2, 0.8) * plan.iterations * plan.interval, random.uniform(1.5, 3.0)
    plan.everybody = lambda time: times if time >= onset else 1.0
    return plan


def _transient(random: Random) -> _Plan:
    plan = _plan(random)
    plan.spikes = 0.05
    return plan


PLANTS: dict[str, Callable[[Random], _Plan]] = {
    "healthy": _healthy,
    "emerging": _emerging,
    "recovering": _recovering,
    "always": _always,
    "everybody": _everybody,
    "transient": _transient,
}


def fleet(plant: str, seed: int) -> Fleet:
    """The fleet of this seed. The same seed always gives the same fleet. Workers begin and end at different
    times."""
    random = Random(f"{plant} {seed}")
    plan = PLANTS[plant](random)
    samples: list[Sample] = []
    for worker in range(plan.workers):
        pace = math.exp(random.gauss(0.0, plan.steady))
        time = random.uniform(0.0, 2.0) * plan.interval
        for _ in range(plan.iterations - random.randint(0, plan.iterations // 20)):
            wave = 1.0 + plan.drift * math.sin(2.0 * math.pi * time / (plan.iterations * plan.interval))
            took = pace * wave * math.exp(random.gauss(0.0, plan.noise)) * plan.everybody(time)
            took *= random.uniform(1.5, 4.0) if random.random() < plan.spikes else 1.0
            took *= plan.slow[worker].at(time) if worker in plan.slow else 1.0
            samples.append((worker, round(time, 3), took))
            time += plan.interval * random.uniform(0.9, 1.1)
    random.shuffle(samples)
    return Fleet(plant, seed, samples, plan.interval, plan.slow)
