"""Measure snapshots that are copied beside training: how long steps wait for them, and what they cost.

A model and AdamW of real size train in this process, one step with a snapshot and one without, in turns. The
batch is made so large that forward and backward take a given multiple of a copy of the state."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from benchmarks.checkpointing.limits import WarmCopy
from holdfast.ipc.arena import Arena
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, LAYERS = 1536, 8
"""227 MB of weights and moments."""
LAZILY_COMPARED = 3
"""Lazy snapshots whose bytes are all compared; they are taken before anything is timed."""


@dataclass(slots=True)
class Steps:
    """Seconds: of each step without a snapshot, of each with one, and what the latter waited in all."""

    plain_s: list[float] = field(default_factory=list)
    lazy_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)


class LazyTraining:
    """One model, its optimizer and an arena in the folder."""

    def __init__(self, folder: Path) -> None:
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        self._model = nn.Sequential(*layers)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._optimizer.register_step_pre_hook(lambda *_: self._settle())
        self._waited_s = 0.0
        self._number = 0
        self._batch = 64
        tracked = TrackedState()
        tracked.add("model", self._model)
        tracked.add("optimizer", self._optimizer)
        self._writer = SnapshotWriter(tracked)
        self._step()
        path = folder / "lazy.arena"
        self._arena = Arena.create(path, self._writer.needs() + (1 << 16))
        self._writer.attach(str(path))
        for _ in range(LAZILY_COMPARED):
            self._begin()
            self._step()
        self._warm = WarmCopy(dict(enumerate(self._tensors())), folder)  # type: ignore[arg-type]

    def memcpy_s(self) -> float:
        """The median time of a copy of the same tensors into warm shared memory, s."""
        return statistics.median(self._warm.seconds() for _ in range(5))

    def steps(self, multiple: float, pairs: int) -> Steps:
        """Train `pairs` steps of each kind, each taking about `multiple` copies of the state."""
        self._fit(multiple * self.memcpy_s())
        found = Steps()
        for _ in range(pairs):
            found.plain_s.append(self._step())
            self._waited_s = 0.0
            begun = time.perf_counter()
            self._begin()
            self._waited_s += time.perf_counter() - begun
            self._step()
            found.lazy_s.append(time.perf_counter() - begun)
            found.waited_s.append(self._waited_s)
        return found

    def close(self) -> None:
        """Free the memory."""
        self._writer.detach()
        self._arena.close()
        self._warm.close()

    def _fit(self, wanted_s: float) -> None:
        """Choose the batch with which a step takes so long."""
        for _ in range(3):
            taken_s = min(self._step() for _ in range(3))
            self._batch = max(1, round(self._batch * wanted_s / taken_s))

    def _begin(self) -> None:
        self._number += 1
        outcome = self._writer.write(self._number, 1, self._number - 1, lazily=True)
        assert isinstance(outcome, int), outcome

    def _settle(self) -> None:
        begun = time.perf_counter()
        ended = self._writer.settle()
        self._waited_s += time.perf_counter() - begun
        assert ended is None or ended.whole, ended

    def _step(self) -> float:
        begun = time.perf_counter()
        self._optimizer.zero_grad()
        self._model(torch.ones(self._batch, WIDTH)).square().mean().backward()
        self._optimizer.step()
        return time.perf_counter() - begun

    def _tensors(self) -> list[torch.Tensor]:
        slots = [value for state in self._optimizer.state.values() for value in state.values()]
        return [tensor.detach() for tensor in [*self._model.parameters(), *slots]]
