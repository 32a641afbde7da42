"""Plan from a seed which kills a run must take, before anything runs. Pure.

A kill ("blow") happens once: in the first process that is at its place, as the rank that is meant, in its
step or a later one. Kills happen one after the other: each waits for the one before it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_STEP = ("data", "forward", "backward", "optimizer", "tail", "snapshot")
IN_RECOVERY = ("forming", "restore")
"""Phases that need a kill before them: they come while the ranks recover from it."""
PHASES = (*IN_STEP, *IN_RECOVERY)
_NTH_MAX = {"data": 1, "forward": 3, "backward": 3, "optimizer": 0, "tail": 3, "snapshot": 8}
_NTH_MAX |= {"forming": 20, "restore": 2}


@dataclass(frozen=True, slots=True)
class Blow:
    """One SIGKILL of this rank, at the n-th place of this phase in this step.

    `task`: which training of the script, where it has several."""

    number: int
    phase: str
    rank: int
    task: int
    step: int
    nth: int

    @property
    def at(self) -> tuple[int, int]:
        """Task and step, in the order of time."""
        return self.task, self.step


def plan(name: str, seed: int, kills: int, ranks: int, tasks: int, steps: int) -> tuple[Blow, ...]:
    """Plan `kills` kills, one in each phase first, as far as they reach.

    A kill in a recovery comes right after one within a step."""
    chance = random.Random(f"{seed} {name}")
    phases = _phases(chance, kills)
    places = _places(chance, sum(phase in IN_STEP for phase in phases), tasks, steps)
    blows: list[Blow] = []
    for number, phase in enumerate(phases):
        task, step = next(places) if phase in IN_STEP else blows[-1].at
        nth = chance.randint(0, _NTH_MAX[phase])
        blows.append(Blow(number, phase, chance.randrange(ranks), task, step, nth))
    return tuple(blows)


def _phases(chance: random.Random, kills: int) -> list[str]:
    """One of each phase before any comes again; never two in the same recovery."""
    within = [*chance.sample(IN_STEP, len(IN_STEP))]
    beyond = [*chance.sample(IN_RECOVERY, len(IN_RECOVERY))]
    found: list[str] = []
    while len(found) < kills:
        if not within:
            within = [*chance.sample(IN_STEP, len(IN_STEP))]
        if not beyond and len(found) % len(PHASES) == 0:
            beyond = [*chance.sample(IN_RECOVERY, len(IN_RECOVERY))]
        found.append(within.pop())
        if beyond and len(found) < kills and chance.random() < 0.5 + 0.5 * (len(within) <= len(beyond)):
            found.append(beyond.pop())
    return found


def _places(chance: random.Random, count: int, tasks: int, steps: int) -> Iterator[tuple[int, int]]:
    """Tasks and steps to kill in, ascending, apart from each other, never the first step.

    The last third is left for kills that happen later than planned: at the next snapshot, or in the next step
    of that kind."""
    everywhere = [(task, step) for task in range(tasks) for step in range(1, steps - 1)]
    everywhere = everywhere[: len(everywhere) * 2 // 3]
    apart = max(len(everywhere) // max(count, 1), 1)
    for index in range(count):
        low = index * apart
        high = max(low, low + apart - 2)
        yield everywhere[min(chance.randint(low, high), len(everywhere) - 1)]
