"""Follow the progress of the simulated training, and book which part of it was kept.

A stretch of training begins with a generation, is halted by a failure or a planned change, and is settled
when the next generation begins: only then it is known at which step the core starts again, and so what was
lost. Training is a cycle of `steps_per_checkpoint` steps and one copy of the state, which stops it for
`stall_s`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.goodput import KEPT

if TYPE_CHECKING:
    from controlplane.analysis.goodput import NodeTimeLedger
    from controlplane.simulation.costs import Setup


@dataclass(slots=True)
class TrainedStretch:
    """The training of one generation. Times in s."""

    generation: int
    nodes: int  # number of nodes that train
    first: int  # steps completed when it began
    began_at: float
    ended_at: float = -1.0  # when it was halted; negative: it goes on


class SimulatedTraining:
    """The one job's progress."""

    def __init__(self, setup: Setup, ledger: NodeTimeLedger) -> None:
        self.setup = setup
        self.ledger = ledger
        self.kept_s = 0.0  # time (s) of training that was kept, on however many nodes
        self.stretch: TrainedStretch | None = None

    @property
    def on(self) -> bool:
        """Whether steps are being made now."""
        return self.stretch is not None and self.stretch.ended_at < 0

    @property
    def nodes(self) -> int:
        """Number of nodes that make steps now; 0: none does."""
        return self.stretch.nodes if self.stretch is not None and self.on else 0

    def begin(self, generation: int, nodes: int, first: int, now: float) -> None:
        """Begin a stretch: all ranks of a generation train from step `first` on. Settles the one before."""
        self.settle(first, now)
        self.stretch = TrainedStretch(generation, nodes, first, now)

    def halt(self, now: float) -> None:
        """End the stretch's training: no rank gets any further."""
        if self.stretch is not None and self.on:
            self.stretch.ended_at = now

    def boundary(self, now: float) -> float:
        """Return when (s) the step that is being made ends; `now` when none is."""
        if self.stretch is None or not self.on:
            return now
        steps = math.ceil(self._work_s(now) / self.setup.step_s - 1e-6)
        copies = steps // self.setup.steps_per_checkpoint
        return max(now, self.stretch.began_at + steps * self.setup.step_s + copies * self.setup.stall_s)

    def steps(self, now: float) -> int:
        """Return the number of steps completed so far."""
        if self.stretch is None:
            return 0
        return self.stretch.first + int(self._work_s(now) / self.setup.step_s + 1e-6)

    def copied(self, now: float) -> int:
        """Return the newest step whose state this generation has copied; -1 when none."""
        if self.stretch is None:
            return -1
        every = self.setup.steps_per_checkpoint
        cycles = self._cycles(now)
        return self.stretch.first + cycles * every if cycles else -1

    def settle(self, resume: int | None, now: float) -> None:
        """Book the stretch in the ledger: kept up to step `resume`, lost after it; None: all of it is kept.

        A `resume` before the stretch's first step also takes back what earlier stretches kept."""
        done = self.stretch
        if done is None:
            return
        end = done.ended_at if done.ended_at >= 0 else now
        work_s = self._work_s(end)
        kept_s = work_s if resume is None else min(work_s, (resume - done.first) * self.setup.step_s)
        self.kept_s += kept_s
        span_s, copies = end - done.began_at, int(max(0.0, kept_s) / self._tau_s + 1e-9)
        if kept_s <= 0:
            self.ledger.add(KEPT, done.began_at, end, done.nodes * kept_s / span_s if span_s else 0.0)
            self.ledger.add("lost_steps", done.began_at, end, done.nodes * (1 - kept_s / max(span_s, 1e-9)))
        else:
            until = min(end, done.began_at + kept_s + copies * self.setup.stall_s)
            whole_s = until - done.began_at
            self.ledger.add(KEPT, done.began_at, until, done.nodes * kept_s / whole_s)
            self.ledger.add("stalls", done.began_at, until, done.nodes * (1 - kept_s / whole_s))
            self.ledger.add("lost_steps", until, end, done.nodes)
        self.stretch = None

    @property
    def _tau_s(self) -> float:
        return self.setup.steps_per_checkpoint * self.setup.step_s

    def _cycles(self, now: float) -> int:
        if self.stretch is None:
            return 0
        end = self.stretch.ended_at if self.stretch.ended_at >= 0 else now
        return int((end - self.stretch.began_at) / (self._tau_s + self.setup.stall_s) + 1e-9)

    def _work_s(self, now: float) -> float:
        """Return the time (s) spent in steps, without the copies."""
        if self.stretch is None:
            return 0.0
        end = self.stretch.ended_at if self.stretch.ended_at >= 0 else now
        cycles = self._cycles(now)
        rest = end - self.stretch.began_at - cycles * (self._tau_s + self.setup.stall_s)
        return cycles * self._tau_s + min(self._tau_s, max(0.0, rest))
