"""Make recordings with planted faults, one per seed; each case states which faults, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from benchmarks.diagnosis.pipelines import Faults, Job, Row, record

if TYPE_CHECKING:
    from collections.abc import Callable

Culprit = tuple[str, int | None, int | None]
"""(kind, dp_rank, stage): None where the fault is not limited to one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A recording and who is to blame: `culprits` must be named, and nobody else."""

    plant: str
    seed: int
    job: Job
    rows: list[Row]
    culprits: frozenset[Culprit]


def shape(random: Random, *, pipeline: bool = False) -> Job:
    """A job of random shape."""
    stages = random.choice((2, 4) if pipeline else (1, 2, 4))
    chunks = random.choice((1, 1, 2)) if stages > 1 else 1
    return Job(
        replicas=random.choice((2, 3, 4, 8)),
        stages=stages,
        chunks=chunks,
        micro_batches=stages * random.choice((2, 3, 4)),
        steps=random.randint(5, 12),
        forward_s=random.uniform(0.05, 0.6),
        transfer_s=random.uniform(0.001, 0.004),
        noise=random.choice((0.005, 0.02, 0.05)),
        worker_noise=random.choice((0.0, 0.01, 0.02)),
    )


def _healthy(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    return shape(random), Faults(), set()


def _slow_worker(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = shape(random)
    replica, stage = random.randrange(job.replicas), random.randrange(job.stages)
    times, since = random.uniform(1.25, 3.0), random.choice((0, 0, job.steps // 2)) * 10

    def compute(at_replica: int, at_stage: int, step: int) -> float:
        return times if (at_replica, at_stage) == (replica, stage) and step >= since else 1.0

    return job, Faults(compute=compute), {("slow_worker", replica, stage)}


def _two_slow_workers(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = shape(random)
    while job.replicas < 4:
        job = shape(random)
    times = random.uniform(1.4, 2.5)
    places = [(replica, random.randrange(job.stages)) for replica in random.sample(range(job.replicas), 2)]

    def compute(replica: int, stage: int, _: int) -> float:
        return times if (replica, stage) in places else 1.0

    # a slow worker on every replica would be a slow stage; here at most half of them are slow
    culprits: set[Culprit] = {("slow_worker", *place) for place in places}
    return job, Faults(compute=compute), culprits


def _slow_last_stage(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job, times = shape(random, pipeline=True), random.uniform(1.25, 2.0)
    faults = Faults(compute=lambda _, stage, __: times if stage == job.stages - 1 else 1.0)
    return job, faults, {("overfull_last_stage", None, job.stages - 1)}


def _worker_in_last_stage(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job, times = shape(random, pipeline=True), random.uniform(1.4, 2.5)
    replica, last = random.randrange(job.replicas), job.stages - 1
    faults = Faults(compute=lambda *where: times if where[:2] == (replica, last) else 1.0)
    return job, faults, {("slow_worker", replica, last)}


def _worker_and_last_stage(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = shape(random, pipeline=True)
    while job.replicas < 3:
        job = shape(random, pipeline=True)
    worker = random.randrange(job.replicas), random.randrange(job.stages)
    overfull, times = random.uniform(1.25, 1.6), random.uniform(1.6, 2.5)

    def compute(replica: int, stage: int, _: int) -> float:
        return (overfull if stage == job.stages - 1 else 1.0) * (times if (replica, stage) == worker else 1.0)

    culprits: set[Culprit] = {("slow_worker", *worker), ("overfull_last_stage", None, job.stages - 1)}
    return job, Faults(compute=compute), culprits


def _worker_and_uneven_lengths(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job, uneven, _ = _uneven_lengths(random)
    worker, times = (random.randrange(job.replicas), random.randrange(job.stages)), random.uniform(1.6, 3.0)
    faults = Faults(
        compute=lambda *where: times if where[:2] == worker else 1.0,
        length=uneven.length,
    )
    return job, faults, {("slow_worker", *worker)}


def _few_steps(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = replace(shape(random), steps=random.randint(1, 2))
    worker, times = (random.randrange(job.replicas), random.randrange(job.stages)), random.uniform(1.5, 3.0)
    faults = Faults(compute=lambda *where: times if where[:2] == worker else 1.0)
    return job, faults, {("slow_worker", *worker)}


def _few_healthy_steps(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    return replace(shape(random), steps=random.randint(1, 2)), Faults(), set()


def _few_uneven_steps(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job, faults, culprits = _uneven_lengths(random)
    return replace(job, steps=random.randint(1, 3)), faults, culprits


def _uneven_lengths(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job, sigma = shape(random), random.uniform(0.15, 0.5)
    lengths: dict[tuple[int, int, int], float] = {}

    def length(replica: int, step: int, micro_batch: int) -> float:
        where = replica, step, micro_batch
        if where not in lengths:
            lengths[where] = random.lognormvariate(0.0, sigma)
        return lengths[where]

    return job, Faults(length=length), set()


def _slow_link(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = shape(random, pipeline=True)
    replica, stage = random.randrange(job.replicas), random.randrange(job.stages - 1)
    times = random.uniform(0.4, 1.0) * job.forward_s / job.transfer_s

    def link(at_replica: int, at_stage: int) -> float:
        return times if (at_replica, at_stage) == (replica, stage) else 1.0

    return job, Faults(link=link), {("slow_link", replica, stage)}


def _slow_collective(random: Random) -> tuple[Job, Faults, set[Culprit]]:
    job = shape(random, pipeline=True)
    while job.stages < 3:
        job = shape(random, pipeline=True)
    stage = random.randrange(1, job.stages)
    computes_s = 2.9 * job.forward_s * job.micro_batches * job.chunks
    times = (
        8.0 + random.uniform(0.15, 0.5) * computes_s / job.collective_s
    )  # part of the collective overlaps with computes, and delays nothing
    slow = random.choice((("params-all-gather", "grads-reduce-scatter"), ("grads-reduce-scatter",)))

    def collective(at_stage: int, kind: str) -> float:
        return times if at_stage == stage and kind in slow else 1.0

    return job, Faults(collective=collective), {("slow_link", None, stage)}


PLANTS: dict[str, Callable[[Random], tuple[Job, Faults, set[Culprit]]]] = {
    "healthy": _healthy,
    "slow_worker": _slow_worker,
    "two_slow_workers": _two_slow_workers,
    "worker_in_last_stage": _worker_in_last_stage,
    "worker_and_last_stage": _worker_and_last_stage,
    "few_steps": _few_steps,
    "few_healthy_steps": _few_healthy_steps,
    "slow_last_stage": _slow_last_stage,
    "uneven_lengths": _uneven_lengths,
    "few_uneven_steps": _few_uneven_steps,
    "worker_and_uneven_lengths": _worker_and_uneven_lengths,
    "slow_link": _slow_link,
    "slow_collective": _slow_collective,
}


def planted(plant: str, seed: int) -> Case:
    """The case of this seed. The same seed always gives the same case."""
    random = Random(f"{plant} {seed}")
    job, faults, culprits = PLANTS[plant](random)
    return Case(plant, seed, job, record(job, faults, random), frozenset(culprits))
