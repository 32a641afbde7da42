"""Recorded operations as columns, and as arrays over steps and data-parallel ranks.

All steps and replicas of a job run the same operations per stage. So an operation is (stage, kind, sequence
number), and what was recorded of it is an array over (step, data-parallel rank). Steps that lack an operation
or have one more (a recording that begins or ends in the middle of a step) are left out and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.steps.operations import BEHAVIOURS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

COLUMNS = (
    *("dp_rank", "stage", "rank", "step", "optype", "start_ts"),
    *("duration", "seq_id", "mc", "mb_id", "gmc"),
)
"""The columns of a timeline file."""
KINDS = tuple(BEHAVIOURS)
WHOLE_RATIO = 0.5
"""An operation belongs to a step when it is recorded in more than this part of all steps and replicas."""
OPERATIONS_MAX = 100_000
"""Operations of a step at most, all stages together. A pipeline of 64 stages has a tenth of that."""
CELLS_MAX = 10_000_000
"""Operations x steps x replicas at most: 80 MB an array. A sparse file could ask for far more."""


class TimelineError(ValueError):
    """The records do not describe the steps of a job. `row`: index of the row to blame, -1 when it is none.

    `column`: the column to blame, or ""."""

    def __init__(self, reason: str, row: int = -1, column: str = "") -> None:
        super().__init__(reason)
        self.reason, self.row, self.column = reason, row, column


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of equal length, a value per recorded operation. `kind` indexes KINDS; times are in s."""

    dp_rank: Ints
    stage: Ints
    rank: Ints
    step: Ints
    kind: Ints
    start_s: Floats
    duration_s: Floats
    seq_id: Ints
    chunk: Ints  # the model chunk within the stage; -1: none
    micro_batch: Ints  # -1: none
    global_chunk: Ints  # the chunk's place in the whole model; -1: none


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a step, the same in all steps and replicas."""

    stage: int
    kind: str
    seq_id: int
    chunk: int
    micro_batch: int
    global_chunk: int

    @property
    def name(self) -> str:
        """The operation's name in errors."""
        return f"{self.kind} {self.seq_id} of stage {self.stage}"


@dataclass(frozen=True, slots=True)
class Steps:
    """Whole steps. Arrays have the axes (operation, step, replica)."""

    operations: tuple[Operation, ...]
    start_s: Floats
    end_s: Floats
    numbers: tuple[int, ...]  # of the steps, ascending, as recorded
    dp_ranks: tuple[int, ...]  # the label of each replica, ascending
    ranks: Ints  # (stage, replica): the global rank
    left_out: int  # steps that are not whole
    repeated: int  # rows that were there twice, counted once

    @property
    def stages(self) -> int:
        """How many pipeline stages the job has."""
        return len(self.ranks)

    @property
    def count(self) -> int:
        """How many whole steps there are."""
        return int(self.start_s.shape[1])


def whole_steps(timeline: Timeline) -> Steps:
    """The whole steps of a recording. Raises TimelineError."""
    if not len(timeline.step):
        raise TimelineError("no operation is recorded: record one step at least")
    dp_ranks, replica = np.unique(timeline.dp_rank, return_inverse=True)
    stages = _check_stages(timeline.stage)
    ranks = _ranks(timeline, replica, stages, dp_ranks)
    steps, step = np.unique(timeline.step, return_inverse=True)
    number = _numbers(timeline, (step * len(dp_ranks) + replica) * stages + timeline.stage)
    code, operations = _operations(timeline, number)
    shape = (len(operations), len(steps), len(dp_ranks))
    if shape[0] * shape[1] * shape[2] > CELLS_MAX:
        raise TimelineError(f"{shape[1]} steps of {shape[2]} replicas are too many: keep fewer steps")
    repeated = _repeated(timeline, (code * len(steps) + step) * len(dp_ranks) + replica)
    start = np.full(shape, np.nan)
    start[code, step, replica] = timeline.start_s
    end = np.full(shape, np.nan)
    end[code, step, replica] = timeline.start_s + timeline.duration_s
    here = ~np.isnan(start)
    usual = here.mean(axis=(1, 2)) > WHOLE_RATIO
    whole = (here == usual[:, None, None]).all(axis=(0, 2))
    if not whole.any():
        raise TimelineError(_why_none(here, usual, operations, steps, dp_ranks))
    kept = tuple(each for each, each_usual in zip(operations, usual, strict=True) if each_usual)
    start, end = start[usual][:, whole], end[usual][:, whole]
    start_s = start.min(axis=(0, 2))[None, :, None]  # clocks of steps may differ: each begins at 0
    numbers, labels = tuple(map(int, steps[whole])), tuple(map(int, dp_ranks))
    left_out = int((~whole).sum())
    return Steps(kept, start - start_s, end - start_s, numbers, labels, ranks, left_out, repeated)


def _check_stages(stage: Ints) -> int:
    found = np.unique(stage)
    for expected, each in enumerate(found):
        if each != expected:
            raise TimelineError(
                f"stage {expected} is missing: stages are numbered 0, 1, 2 ... without a gap",
                int(np.flatnonzero(stage == each)[0]),
                "stage",
            )
    return len(found)


def _ranks(timeline: Timeline, replica: Ints, stages: int, dp_ranks: Ints) -> Ints:
    """The global rank of each (stage, replica). Raises TimelineError."""
    workers = stages * len(dp_ranks)
    if workers > len(timeline.rank):  # checked before memory is taken for so many
        raise TimelineError(f"{workers} workers cannot have {len(timeline.rank)} rows: record every worker")
    ranks = np.full((stages, len(dp_ranks)), -1, dtype=np.int64)
    ranks[timeline.stage, replica] = timeline.rank
    other = np.flatnonzero(ranks[timeline.stage, replica] != timeline.rank)
    if len(other):
        row = int(other[0])
        raise TimelineError(
            f"dp_rank {timeline.dp_rank[row]}, stage {timeline.stage[row]} has two ranks: fold a tensor "
            "group into one record",
            row,
            "rank",
        )
    missing = np.argwhere(ranks < 0)
    if len(missing):
        stage, at = missing[0]
        raise TimelineError(f"dp_rank {dp_ranks[at]} has no operation of stage {stage}: record every worker")
    labels, times = np.unique(ranks, return_counts=True)
    if (times > 1).any():
        twice = int(labels[times > 1][0])
        row = int(np.flatnonzero(timeline.rank == twice)[0])
        raise TimelineError(f"rank {twice} is recorded as two workers: give each its own rank", row, "rank")
    return ranks


def _numbers(timeline: Timeline, worker: Ints) -> Ints:
    """Sequence numbers that begin at 0 in each step of each worker, wherever the recorder began to count."""
    group = worker * len(KINDS) + timeline.kind
    order = np.lexsort((timeline.seq_id, group))
    ordered, numbers = group[order], timeline.seq_id[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    counted = np.cumsum(begins | np.append(True, numbers[1:] != numbers[:-1]))
    first = np.maximum.accumulate(np.where(begins, counted, 0))
    found = np.empty_like(counted)
    found[order] = counted - first
    return found


def _operations(timeline: Timeline, number: Ints) -> tuple[Ints, tuple[Operation, ...]]:
    """The code of each row's operation, and the operation of each code."""
    key = (timeline.stage * len(KINDS) + timeline.kind) * (1 + number.max()) + number
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    if len(first) > OPERATIONS_MAX:
        raise TimelineError(f"a step has {len(first)} operations, {OPERATIONS_MAX} at most: record fewer")
    operations = tuple(
        Operation(
            int(timeline.stage[row]),
            KINDS[timeline.kind[row]],
            int(number[row]),
            int(timeline.chunk[row]),
            int(timeline.micro_batch[row]),
            int(timeline.global_chunk[row]),
        )
        for row in first
    )
    return code, operations


def _repeated(timeline: Timeline, cell: Ints) -> int:
    """How many rows repeat another one. Raises TimelineError when their times differ."""
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order][1:] == cell[order][:-1])
    first, second = order[again], order[again + 1]
    differ = timeline.start_s[first] != timeline.start_s[second]
    differ |= timeline.duration_s[first] != timeline.duration_s[second]
    if differ.any():
        row = int(second[differ].min())
        kind, seq_id = KINDS[timeline.kind[row]], timeline.seq_id[row]
        raise TimelineError(
            f"{kind} {seq_id} of dp_rank {timeline.dp_rank[row]}, stage {timeline.stage[row]}, step "
            f"{timeline.step[row]} is recorded twice, with other times: drop one of the rows",
            row,
            "seq_id",
        )
    return len(again)


def _why_none(
    here: NDArray[np.bool_],
    usual: NDArray[np.bool_],
    operations: tuple[Operation, ...],
    steps: Ints,
    dp_ranks: Ints,
) -> str:
    at, step, replica = np.argwhere(here != usual[:, None, None])[0]
    has = "has an extra" if here[at, step, replica] else "lacks"
    return (
        f"no step is whole: dp_rank {dp_ranks[replica]} {has} {operations[at].name} in step {steps[step]}; "
        "record one whole step of all workers"
    )
