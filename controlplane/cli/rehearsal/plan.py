"""Say what a rehearsal does: which kills, until which step, and where training is held for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.cli.demo.kills import PlannedKill

STEPS = 30
PLACEHOLDER = "{training}"
"""Stands for the name of a training in the script's arguments."""
EVERY = 10
"""Steps between two snapshots, unless the flags say otherwise."""


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """What the flags ask for. `words`: flags of `holdfast run`, the script and its arguments. `every`: steps
    between two checkpoints. `until`: the step that is compared, one that has a checkpoint."""

    words: tuple[str, ...]
    world_size: int
    every: int
    until: int
    kills: tuple[PlannedKill, ...]
    as_json: bool
    keep: bool
    seed: int
    timeout_s: float

    def words_for(self, training: str) -> list[str]:
        """The words of one training: each may have folders of its own."""
        return [word.replace(PLACEHOLDER, training) for word in self.words]

    def places_of(self, training: str) -> dict[str, str]:
        """What the script is told where, in this training alone: with the placeholder instead."""
        told = [word.rpartition("=")[2] for word in self.words if PLACEHOLDER in word]
        return {text.replace(PLACEHOLDER, training): text for text in told}

    @property
    def holds(self) -> tuple[int, ...]:
        """The steps at whose start training is held, in order: those with kills or with checkpoints."""
        saved = range(self.every, self.until + 1, self.every)
        return tuple(sorted({*saved, *(kill.step for kill in self.kills)}))


def usual_kills(until: int, world_size: int) -> tuple[PlannedKill, ...]:
    """The kills if none is named: of the last rank, of rank 0, which most scripts give more to do, and of one
    in between, spread over the steps."""
    ranks = (world_size - 1, 0, world_size // 2)
    steps = (max(1, until * part // 5) for part in (1, 2, 4))
    return tuple(PlannedKill("rank", step, rank) for step, rank in zip(steps, ranks, strict=True))


def rounded(until: int, every: int) -> int:
    """The next step that has a checkpoint."""
    return -(-until // every) * every
