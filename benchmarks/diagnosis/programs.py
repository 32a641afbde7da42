"""Run made-up programs of collectives, sends and receives against each other until nothing moves.

Every rank has a program: its calls in tensor, pipeline and data groups, step after step. A collective
completes when all of its ranks have called it alike, a transfer when both ends have. A rank may have two
operations open (the network is asynchronous) before it waits for its oldest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

START_NS = 1_750_000_000_000_000_000
SLACK = 2
"""The operations that a rank may have open."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a program. `group`: its ranks; `peer`: of a transfer, the other end."""

    operation: str
    group: tuple[int, ...]
    use: str
    size: int
    dtype: str = "Float"
    peer: int = -1
    line: int = 0

    @property
    def transfer(self) -> bool:
        """Whether it is a send or a receive."""
        return self.peer >= 0


@dataclass(slots=True)
class JobShape:
    """The sizes of a job: tensor, pipeline and data groups, and its steps."""

    tensor: int
    pipeline: int
    data: int
    steps: int
    micro_batches: int

    @property
    def ranks(self) -> int:
        """How many ranks it has."""
        return self.tensor * self.pipeline * self.data

    def rank(self, data: int, stage: int, tensor: int) -> int:
        """The rank at a place."""
        return (data * self.pipeline + stage) * self.tensor + tensor

    def place(self, rank: int) -> tuple[int, int, int]:
        """(data, stage, tensor) of a rank."""
        return (
            rank // (self.tensor * self.pipeline),
            rank // self.tensor % self.pipeline,
            rank % self.tensor,
        )


def program(shape: JobShape, rank: int) -> list[PlannedCall]:
    """What a healthy rank calls, in order."""
    data, stage, tensor = shape.place(rank)
    tensors = tuple(shape.rank(data, stage, each) for each in range(shape.tensor))
    stages = tuple(shape.rank(data, each, tensor) for each in range(shape.pipeline))
    copies = tuple(shape.rank(each, stage, tensor) for each in range(shape.data))
    world = tuple(range(shape.ranks))
    calls: list[PlannedCall] = []

    def add(operation: str, group: tuple[int, ...], use: str, size: int, line: int) -> None:
        if len(group) > 1:
            calls.append(PlannedCall(operation, group, use, size, line=line))

    def move(operation: str, to: int, line: int) -> None:
        calls.append(PlannedCall(operation, stages, "PP", 64, peer=stages[to], line=line))

    for _ in range(shape.steps):
        for _ in range(shape.micro_batches):
            if stage > 0:
                move("recv", stage - 1, 20)
            add("_all_gather_base", tensors, "TP", 32, 21)
            add("all_reduce", tensors, "TP", 48, 22)
            if stage + 1 < shape.pipeline:
                move("send", stage + 1, 23)
        for _ in range(shape.micro_batches):
            if stage + 1 < shape.pipeline:
                move("recv", stage + 1, 30)
            add("_reduce_scatter_base", tensors, "TP", 96, 31)
            if stage > 0:
                move("send", stage - 1, 32)
        add("all_reduce", copies, "DP", 256, 40)
        add("all_reduce", copies, "DP", 128, 41)
        add("all_reduce", world, "default_pg", 1, 50)
    return calls


@dataclass(slots=True)
class MadeUpJob:
    """A job with its fault, and the truth. `stop`: by rank, how many calls it makes before it stops for ever;
    `freeze`: from which call on its device completes nothing; `blind`: from which call on it records no
    completion, although its device works."""

    shape: JobShape
    programs: list[list[PlannedCall]]
    stop: dict[int, int] = field(default_factory=dict)
    freeze: dict[int, int] = field(default_factory=dict)
    blind: dict[int, int] = field(default_factory=dict)
    culprits: tuple[int, ...] = ()
    either: tuple[int, ...] = ()  # may be undetermined: who of them is wrong is in no record
    lost: dict[int, str] = field(default_factory=dict)  # by rank: absent, empty, stale


@dataclass(slots=True)
class RunningRank:
    """One rank while it runs. Of each call so far: whether it has ended, its collective and transfer numbers
    within the group, when it was made (ns)."""

    program: list[PlannedCall]
    called: int = 0
    ended: list[bool] = field(default_factory=list)
    numbers: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[tuple[str, tuple[int, ...]], list[int]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)


def run(job: MadeUpJob, random: Random) -> list[RunningRank]:
    """Run the programs against each other until nothing moves."""
    ranks = [RunningRank(calls) for calls in job.programs]
    now, moved = START_NS, True
    while moved:
        moved = False
        for rank, each in enumerate(ranks):
            while _may_call(job, rank, each):
                now += random.randint(1_000, 400_000)
                _call(each, now)
                moved = True
        moved |= _complete(job, ranks)
    return ranks


def _may_call(job: MadeUpJob, rank: int, each: RunningRank) -> bool:
    limit = min(len(each.program), job.stop.get(rank, len(each.program)))
    open_calls = sum(not ended for ended in each.ended[-4 * SLACK :])
    return each.called < limit and open_calls < SLACK


def _call(each: RunningRank, now: int) -> None:
    call = each.program[each.called]
    counts = each.counts.setdefault((call.use, call.group), [0, 0])
    counts[call.transfer] += 1
    each.numbers.append((counts[0], counts[1]))
    each.ended.append(False)
    each.times.append(now)
    each.called += 1


def _complete(job: MadeUpJob, ranks: list[RunningRank]) -> bool:
    """Complete the oldest open operation of each rank where all of its ends have come to it."""
    heads: dict[tuple[Any, ...], list[int]] = {}
    for rank, each in enumerate(ranks):
        at = next(
            (index for index in range(max(0, each.called - SLACK), each.called) if not each.ended[index]), -1
        )
        if at < 0 or at >= job.freeze.get(rank, at + 1):
            continue
        call, (sequence, _) = each.program[at], each.numbers[at]
        if call.transfer:
            ends = (rank, call.peer) if call.operation == "send" else (call.peer, rank)
            key: tuple[Any, ...] = ("pair", call.use, call.group, *ends)
        else:
            key = (call.operation, call.use, call.group, sequence, call.size, call.dtype)
        heads.setdefault(key, []).append(rank)
    moved = False
    for key, there in heads.items():
        if len(there) == (2 if key[0] == "pair" else len(key[2])):
            for rank in there:
                each = ranks[rank]
                each.ended[each.ended.index(False, max(0, each.called - SLACK))] = True
            moved = True
    return moved
