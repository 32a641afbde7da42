"""Plant faults that stop a made-up job: a rank that stops, calls something else, loses its device, dies.

Each plant makes a job from a seed and says who is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.diagnosis.programs import SLACK, JobShape, MadeUpJob, PlannedCall, program

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


def _shape(random: Random, ranks_max: int = 32) -> JobShape:
    while True:
        shape = JobShape(
            random.choice((1, 2, 2, 4, 8)),
            random.choice((1, 1, 2, 4)),
            random.choice((1, 2, 4, 8)),
            random.randint(2, 4),
            random.randint(1, 3),
        )
        if 3 <= shape.ranks <= ranks_max:
            return shape


def _healthy_job(random: Random, ranks_max: int = 32) -> MadeUpJob:
    shape = _shape(random, ranks_max)
    return MadeUpJob(shape, [program(shape, rank) for rank in range(shape.ranks)])


def _at(job: MadeUpJob, random: Random, fits: Callable[[PlannedCall], bool]) -> tuple[int, int] | None:
    """A rank and one of its calls that fits, not the first nor the last ones."""
    for _ in range(200):
        rank = random.randrange(job.shape.ranks)
        places = [at for at, call in enumerate(job.programs[rank][:-4]) if at > 2 and fits(call)]
        if places:
            return rank, random.choice(places)
    return None


def _faulty(
    random: Random, fits: Callable[[PlannedCall], bool], ranks_max: int = 32
) -> tuple[MadeUpJob, int, int]:
    while True:
        job = _healthy_job(random, ranks_max)
        if found := _at(job, random, fits):
            job.culprits = (found[0],)
            return job, *found


def _voted(call: PlannedCall) -> bool:
    return not call.transfer and len(call.group) > 2


def _all_completed(random: Random) -> MadeUpJob:
    return _healthy_job(random)


def _in_progress(random: Random) -> MadeUpJob:
    """All are in the same last collective."""
    job = _healthy_job(random)
    job.freeze = {rank: len(calls) - 1 for rank, calls in enumerate(job.programs)}
    return job


def _not_arrived(random: Random) -> MadeUpJob:
    job, rank, at = _faulty(random, lambda call: not call.transfer)
    job.stop[rank] = at
    return job


def _held_interpreters(random: Random) -> MadeUpJob:
    """Two ranks that stop in the same micro-batch, before the same call of their programs."""
    while True:
        job = _healthy_job(random)
        shape = job.shape
        if shape.tensor < 2 or shape.data < 2:
            continue
        stage = random.randrange(shape.pipeline)
        data = random.sample(range(shape.data), 2)
        pair = [shape.rank(each, stage, random.randrange(shape.tensor)) for each in data]
        places = [at for at, call in enumerate(job.programs[pair[0]][:-4]) if at > 2 and call.use == "TP"]
        job.stop = dict.fromkeys(pair, random.choice(places))
        job.culprits = tuple(pair)
        return job


def _changed(random: Random, fits: Callable[[PlannedCall], bool], **change: Any) -> MadeUpJob:
    job, rank, at = _faulty(random, fits)
    job.programs[rank][at] = replace(job.programs[rank][at], **change)
    return job


def _other_collective(random: Random) -> MadeUpJob:
    return _changed(random, _voted, operation="broadcast", line=77)


def _other_shape(random: Random) -> MadeUpJob:
    return _changed(random, _voted, size=7, line=77)


def _other_dtype(random: Random) -> MadeUpJob:
    return _changed(random, _voted, dtype="BFloat16", line=77)


def _left_out(random: Random) -> MadeUpJob:
    job, rank, at = _faulty(random, _voted)
    del job.programs[rank][at]
    return job


def _other_order(random: Random) -> MadeUpJob:
    """Two collectives of the same group, or of two groups, the other way round."""
    while True:
        job, rank, at = _faulty(random, _voted)
        mine = job.programs[rank]
        first, second = mine[at], mine[at + 1]
        if _voted(second) and first.operation + str(first.size) != second.operation + str(second.size):
            mine[at], mine[at + 1] = second, first
            return job


def _two_ranks_disagree(random: Random) -> MadeUpJob:
    """Two ranks call different collectives: it is in no record who is wrong."""
    shape = JobShape(2, 1, 1, random.randint(2, 4), 1)
    job = MadeUpJob(shape, [program(shape, rank) for rank in range(2)])
    rank, at = random.randrange(2), random.randrange(3, 6)
    job.programs[rank][at] = replace(job.programs[rank][at], size=7)
    job.either = (0, 1)
    return job


def _stuck_transfer(random: Random) -> MadeUpJob:
    """A rank stops before a send or receive that its neighbour in the pipeline has called."""
    job, rank, at = _faulty(random, lambda call: call.transfer)
    job.stop[rank] = at
    return job


def _stopped_device(random: Random) -> MadeUpJob:
    """The peers complete an operation, and this rank does not record it, nor anything later; it calls on,
    until it waits for its device."""
    job, rank, at = _faulty(random, lambda call: not call.transfer and len(call.group) > 1)
    job.blind[rank] = at
    job.stop[rank] = at + SLACK
    return job


def _dead_process(random: Random) -> MadeUpJob:
    job, rank, at = _faulty(random, lambda call: not call.transfer)
    job.stop[rank] = at
    job.lost[rank] = "absent"
    return job


def _noise(why: str) -> Callable[[Random], MadeUpJob]:
    """A rank stops; the dump of another rank is lost."""

    def make(random: Random) -> MadeUpJob:
        job, rank, at = _faulty(random, lambda call: not call.transfer)
        job.stop[rank] = at
        others = [each for each in range(job.shape.ranks) if each != rank]
        job.either = (random.choice(others),)
        job.lost[job.either[0]] = why
        return job

    return make


def _large(random: Random) -> MadeUpJob:
    """A rank of 256 stops."""
    shape = JobShape(8, 4, 8, 2, 2)
    job = MadeUpJob(shape, [program(shape, rank) for rank in range(shape.ranks)])
    rank = random.randrange(shape.ranks)
    job.stop[rank] = random.randrange(3, len(job.programs[rank]) - 4)
    job.culprits = (rank,)
    return job


PLANTS: dict[str, Callable[[Random], MadeUpJob]] = {
    "all_completed": _all_completed,
    "in_progress": _in_progress,
    "not_arrived": _not_arrived,
    "held_interpreters": _held_interpreters,
    "other_collective": _other_collective,
    "other_shape": _other_shape,
    "other_dtype": _other_dtype,
    "left_out": _left_out,
    "other_order": _other_order,
    "two_ranks_disagree": _two_ranks_disagree,
    "stuck_transfer": _stuck_transfer,
    "stopped_device": _stopped_device,
    "dead_process": _dead_process,
    "absent_noise": _noise("absent"),
    "empty_noise": _noise("empty"),
    "stale_noise": _noise("stale"),
    "large": _large,
}
