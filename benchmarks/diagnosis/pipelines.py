"""Make up the recording of a pipeline-parallel job, event by event. This module knows nothing of the
detectors.

Each worker (replica, stage) runs its schedule: one forward, one backward, or the interleaved form of it. A
receive is posted when the operation before it is over, and blocks its worker; a send does not block. The
recorded time of a transfer includes the time spent waiting, as in a profiler's recording."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

Row = tuple[int, int, int, int, str, float, float, int, int, int, int]
"""dp_rank, stage, rank, step, optype, start_ts, duration, seq_id, mc, mb_id, gmc."""


@dataclass(frozen=True, slots=True)
class Job:
    """The shape of a job, and how long its operations take when nothing is wrong, in s."""

    replicas: int = 4
    stages: int = 4
    chunks: int = 1  # model chunks per stage
    micro_batches: int = 8
    steps: int = 8
    forward_s: float = 0.2
    transfer_s: float = 0.002
    collective_s: float = 0.1
    overlap: bool = False  # gradients are scattered per chunk, while computes go on
    noise: float = 0.02  # sigma of the lognormal factor of every operation
    worker_noise: float = 0.01  # the same, once per worker
    spikes: float = 0.002  # the share of the operations that take three times as long


@dataclass(slots=True)
class Faults:
    """Functions from place and time to a factor of the duration there. By default every factor is 1."""

    compute: Callable[[int, int, int], float] = lambda replica, stage, step: 1.0
    length: Callable[[int, int, int], float] = lambda replica, step, micro_batch: 1.0
    link: Callable[[int, int], float] = lambda replica, stage: 1.0  # to the next stage, both ways
    collective: Callable[[int, str], float] = lambda stage, kind: 1.0


Unit = tuple[str, int, int]
"""("forward" or "backward", chunk, micro-batch)"""


def schedule(job: Job, stage: int) -> list[Unit]:
    """The computes of one stage, in their order. With chunks, micro_batches is a multiple of stages."""
    total, width = job.micro_batches * job.chunks, job.stages
    group = width * job.chunks if job.chunks > 1 else total

    def unit(kind: str, number: int) -> Unit:
        if job.chunks == 1:
            return kind, 0, number
        chunk = number % group // width
        chunk = chunk if kind == "forward" else job.chunks - 1 - chunk
        return kind, chunk, number // group * width + number % width

    ahead = width - stage - 1
    warm = min(total, ahead if job.chunks == 1 else 2 * ahead + (job.chunks - 1) * width)
    order = [unit("forward", number) for number in range(warm)]
    for number in range(total - warm):
        order += [unit("forward", warm + number), unit("backward", number)]
    return order + [unit("backward", number) for number in range(total - warm, total)]


@dataclass(slots=True)
class _Step:
    """One step of all workers, while it is being computed."""

    job: Job
    faults: Faults
    random: Random
    speeds: dict[tuple[int, int], float]
    step: int
    now: dict[tuple[int, int], float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    counts: defaultdict[tuple[int, int, str], int] = field(default_factory=lambda: defaultdict(int))
    chunk_over: dict[tuple[int, int, int], float] = field(
        default_factory=dict
    )  # the last backward of a chunk
    sent: dict[tuple[int, str, int, int], tuple[float, int]] = field(default_factory=dict)  # time, row

    def noisy(self, base_s: float) -> float:
        """This duration with noise. Now and then it is three times as long."""
        spike = 3.0 if self.random.random() < self.job.spikes else 1.0
        return base_s * spike * math.exp(self.random.gauss(0.0, self.job.noise))

    def record(
        self, worker: tuple[int, int], kind: str, start_s: float, end_s: float, unit: Unit | None = None
    ) -> int:
        """Append a row; returns its index."""
        replica, stage = worker
        seq_id = self.counts[replica, stage, kind]
        self.counts[replica, stage, kind] += 1
        rank = stage * self.job.replicas + replica
        chunk, micro_batch = (
            (unit[1], unit[2]) if unit else (0 if "params" in kind or "scatter" in kind else -1, -1)
        )
        whole = chunk * self.job.stages + stage if unit else -1
        self.rows.append(
            (
                replica,
                stage,
                rank,
                self.step,
                kind,
                start_s,
                end_s - start_s,
                seq_id,
                chunk,
                micro_batch,
                whole,
            )
        )
        return len(self.rows) - 1

    def computes(self) -> None:
        """Record all computes and their transfers: each worker goes on as soon as its next compute has its
        input."""
        left = {worker: schedule(self.job, worker[1]) for worker in self.now}
        while any(left.values()):
            before = sum(map(len, left.values()))
            for worker, units in left.items():
                while units and self._ready(worker, units[0]):
                    self._compute(worker, units.pop(0))
            assert sum(map(len, left.values())) < before, "the schedule blocks itself"

    def _neighbours(self, stage: int, unit: Unit) -> tuple[int, int, int]:
        """The chunk's place in the whole model, the place its input comes from, and the place its output goes
        to."""
        place = unit[1] * self.job.stages + stage
        ahead = 1 if unit[0] == "forward" else -1
        return place, place - ahead, place + ahead

    def _ready(self, worker: tuple[int, int], unit: Unit) -> bool:
        _, source, _ = self._neighbours(worker[1], unit)
        return not self._inside(source) or (worker[0], unit[0], source, unit[2]) in self.sent

    def _inside(self, place: int) -> bool:
        return 0 <= place < self.job.stages * self.job.chunks

    def _compute(self, worker: tuple[int, int], unit: Unit) -> None:
        replica, stage = worker
        kind, _, micro_batch = unit
        place, source, target = self._neighbours(stage, unit)
        if self._inside(source):
            sent_s, row = self.sent.pop((replica, kind, source, micro_batch))
            posted_s = self.now[worker]
            lower = min(source, place) % self.job.stages
            took_s = self.noisy(self.job.transfer_s) * self.faults.link(replica, lower)
            over_s = max(sent_s, posted_s) + took_s
            self.record(worker, f"{kind}-recv", posted_s, over_s)
            self.rows[row] = (*self.rows[row][:6], over_s - sent_s, *self.rows[row][7:])
            self.now[worker] = over_s
        base_s = self.job.forward_s * (1.0 if kind == "forward" else 1.9)
        base_s *= self.speeds[worker] * self.faults.compute(replica, stage, self.step)
        start_s = self.now[worker] + abs(self.random.gauss(0.0, 0.0001))
        end_s = start_s + self.noisy(base_s) * self.faults.length(replica, self.step, micro_batch)
        self.record(worker, f"{kind}-compute", start_s, end_s, unit)
        self.now[worker] = end_s
        if kind == "backward":
            self.chunk_over[replica, stage, unit[1]] = end_s
        if self._inside(target):
            row = self.record(worker, f"{kind}-send", end_s, end_s)
            self.sent[replica, kind, place, micro_batch] = end_s, row

    def together(self, kind: str, workers: list[tuple[int, int]], took_s: float) -> None:
        """Record a collective, which begins when the last of its workers has arrived."""
        begun_s = max(self.now[worker] for worker in workers)
        over_s = begun_s + self.noisy(took_s)
        for worker in workers:
            self.record(worker, kind, self.now[worker], over_s)
            self.now[worker] = over_s

    def alone(self, kind: str, took_s: float) -> None:
        """Record an operation that every worker does by itself."""
        for worker, at_s in self.now.items():
            slow = self.faults.compute(*worker, self.step) * self.speeds[worker]
            self.now[worker] = at_s + self.noisy(took_s) * slow
            self.record(worker, kind, at_s, self.now[worker])

    def replicas(self, kind: str, took_s: float) -> None:
        """Record a collective in each stage. It takes twice as long in the first one, which also holds the
        embedding."""
        for stage in range(self.job.stages):
            workers = [worker for worker in self.now if worker[1] == stage]
            self.together(
                kind, workers, took_s * (2.0 if stage == 0 else 1.0) * self.faults.collective(stage, kind)
            )

    def scatter_behind(self, took_s: float) -> None:
        """Scatter the gradients of each chunk as soon as its last backward is over on all replicas."""
        for stage in range(self.job.stages):
            workers = [worker for worker in self.now if worker[1] == stage]
            free_s = 0.0
            for chunk in reversed(range(self.job.chunks)):
                begins = {worker: max(free_s, self.chunk_over[*worker, chunk]) for worker in workers}
                free_s = max(begins.values()) + self.noisy(took_s / self.job.chunks)
                for worker in workers:
                    row = self.record(worker, "grads-reduce-scatter", begins[worker], free_s)
                    self.rows[row] = (*self.rows[row][:8], chunk, *self.rows[row][9:])
            for worker in workers:
                self.now[worker] = max(self.now[worker], free_s)


def record(job: Job, faults: Faults, random: Random) -> list[Row]:
    """The rows of a recording, step by step."""
    workers = [(replica, stage) for replica in range(job.replicas) for stage in range(job.stages)]
    speeds = {worker: math.exp(random.gauss(0.0, job.worker_noise)) for worker in workers}
    rows: list[Row] = []
    for number in range(job.steps):
        step = _Step(job, faults, random, speeds, 10 * number, dict.fromkeys(workers, 0.0))
        step.replicas("params-all-gather", job.collective_s)
        step.computes()
        step.alone("gc", 0.00001)
        if job.overlap:
            step.scatter_behind(2.0 * job.collective_s)
        step.alone("layernorm-grads-all-reduce", 0.003)
        for replica in range(job.replicas):
            ends = sorted({0, job.stages - 1})
            step.together("embedding-grads-all-reduce", [(replica, stage) for stage in ends], 0.02)
        kind = "separate-grads-all-reduce" if job.overlap else "grads-reduce-scatter"
        step.replicas(kind, (0.2 if job.overlap else 2.0) * job.collective_s)
        step.together("optimizer-clip-main-grad", workers, 0.01)
        step.alone("optimizer", 0.02)
        rows += step.rows
    return rows
