"""The rule of two slots over many ranks: a snapshot that all ranks had is not lost before the next one is
whole on all of them, whoever dies in the middle of whichever copy."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.skips import Skip

if TYPE_CHECKING:
    from pathlib import Path

RANKS, STEPS = 3, 300


class Job:
    """Ranks that snapshot each step, tear copies, and hear of releases late but before they form anew."""

    def __init__(self, arenas: list[Arena], source: random.Random) -> None:
        self.arenas, self.source = arenas, source
        self.generation, self.released = 1, -1  # what the coordinator knows
        self.heard = [-1] * len(arenas)
        self.skipped = 0

    def copy(self, rank: int, step: int, torn: bool) -> bool:
        writer = self.arenas[rank].begin(step, self.generation, released_step=self.heard[rank])
        if isinstance(writer, Skip):
            self.skipped += 1
            return False
        if not torn:
            writer.layout(b"{}", 0)
            writer.ready()
        return not torn

    def step(self, step: int) -> None:
        torn = [self.source.random() < 0.05 for _ in self.arenas]
        ready = [self.copy(rank, step, torn[rank]) for rank in range(len(self.arenas))]
        if all(ready):
            self.released = step
        for rank in range(len(self.arenas)):
            if self.source.random() < 0.7:
                self.heard[rank] = self.released
        if any(torn):
            self.generation += 1
            self.heard = [self.released] * len(self.arenas)

    def common(self) -> int:
        """The newest step that all ranks hold whole."""
        held = [{slot.step for slot in arena.slots if slot.state == SlotState.READY} for arena in self.arenas]
        return max(set.intersection(*held), default=-1)


@pytest.mark.parametrize("seed", range(8))
def test_what_all_had_is_not_lost(shm: Path, seed: int) -> None:
    with ExitStack() as stack:
        arenas = [stack.enter_context(Arena.create(shm / f"{rank}", 4096)) for rank in range(RANKS)]
        job = Job(arenas, random.Random(seed))
        for step in range(STEPS):
            before = job.released
            job.step(step)
            assert job.common() >= before
        assert job.released > STEPS - 50, "snapshots came to a stop"
        assert job.skipped > 0
