"""A replay of recorded durations takes as long as the recording did; what does not fit is refused by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.diagnosis.pipelines import Faults, Job, record
from benchmarks.diagnosis.score import timeline
from controlplane.analysis.steps.records import OPERATIONS_MAX, TimelineError, whole_steps
from controlplane.analysis.steps.what_if import WhatIf
from controlplane.analysis.timelines.diagnosis import diagnose

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.diagnosis.pipelines import Row

QUIET = Job(steps=3, micro_batches=4, noise=0.0, worker_noise=0.0, spikes=0.0)


def rows(job: Job = QUIET, faults: Faults | None = None, seed: int = 1) -> list[Row]:
    return record(job, faults or Faults(), Random(seed))


def edited(change: Callable[[Row], Row | None]) -> list[Row]:
    """The rows of a quiet job, some of them changed or dropped."""
    return [new for row in rows() if (new := change(row)) is not None]


def refusal(recorded: list[Row]) -> TimelineError:
    with pytest.raises(TimelineError) as caught:
        diagnose(timeline(recorded))
    return caught.value


@pytest.mark.parametrize(
    "job",
    [
        QUIET,
        replace(QUIET, stages=1),
        replace(QUIET, replicas=1),
        replace(QUIET, replicas=1, stages=1, micro_batches=1, steps=1),
        replace(QUIET, chunks=2),
        replace(QUIET, stages=2, chunks=3),
        replace(QUIET, overlap=True),
        replace(QUIET, chunks=2, overlap=True, collective_s=0.5),
    ],
    ids=str,
)
def test_a_replay_with_the_recorded_durations_takes_as_long_as_the_recording(job: Job) -> None:
    noisy = replace(job, noise=0.1)
    faults = Faults(compute=lambda replica, stage, step: 1.0 + 0.3 * replica + 0.2 * stage)
    what_if = WhatIf(whole_steps(timeline(rows(noisy, faults))))
    recorded_s = what_if.steps.end_s.max(axis=(0, 2)).mean()
    assert what_if.step_s == pytest.approx(recorded_s, rel=0.01)  # gaps before computes are not replayed


def test_a_part_costs_what_it_adds_and_a_share_what_it_takes_away() -> None:
    """One replica of one stage that takes three times as long: a step of computes alone, by hand."""
    job = replace(QUIET, stages=1, replicas=2, steps=1, collective_s=0.0)
    faults = Faults(compute=lambda replica, stage, step: 3.0 if replica == 1 else 1.0)
    what_if = WhatIf(whole_steps(timeline(rows(job, faults))))
    healthy_s = job.micro_batches * 2.9 * job.forward_s
    assert what_if.ideal_step_s == pytest.approx(2.0 * healthy_s, rel=0.02)  # the mean of 1 and 3
    assert what_if.slowdown == pytest.approx(1.5, rel=0.02)
    slow = np.array([[False, True]])
    assert what_if.alone(what_if.workers(slow)) == pytest.approx(1.5, rel=0.02)
    assert what_if.share(what_if.workers(slow)) == pytest.approx(1.0, abs=0.02)
    assert what_if.share(what_if.workers(~slow)) == pytest.approx(0.0, abs=0.02)


def test_each_worker_alone_is_what_a_replay_of_it_alone_gives() -> None:
    what_if = WhatIf(whole_steps(timeline(rows(replace(QUIET, noise=0.2)))))
    alone = what_if.workers_alone()
    for stage, replica in np.ndindex(*alone.shape):
        chosen = np.zeros(alone.shape, dtype=bool)
        chosen[stage, replica] = True
        assert alone[stage, replica] == pytest.approx(what_if.alone(what_if.workers(chosen)))


def test_the_order_of_rows_does_not_matter() -> None:
    faults = Faults(compute=lambda replica, stage, step: 2.0 if (replica, stage) == (2, 1) else 1.0)
    recorded = rows(faults=faults)
    shuffled = Random(3).sample(recorded, len(recorded))
    assert diagnose(timeline(shuffled)) == diagnose(timeline(recorded))


def test_sequence_numbers_may_begin_anywhere_in_each_step() -> None:
    recorded = rows()
    counted_on = [(*row[:7], row[7] + 7 * row[3] + row[0], *row[8:]) for row in recorded]
    assert diagnose(timeline(counted_on)) == diagnose(timeline(recorded))


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("column", [9, 10], ids=["mb_id", "gmc"])
@pytest.mark.parametrize("value", [-1, 0])
def test_micro_batches_and_chunks_need_no_numbers(chunks: int, column: int, value: int) -> None:
    recorded = rows(replace(QUIET, chunks=chunks, noise=0.05))
    plain: list[Any] = [(*row[:column], value, *row[column + 1 :]) for row in recorded]
    assert diagnose(timeline(plain)) == diagnose(timeline(recorded))


def test_a_row_that_is_there_twice_counts_once() -> None:
    recorded = rows()
    found = diagnose(timeline([*recorded, recorded[7]]))
    assert (found.rows_repeated, found.slowdown) == (1, diagnose(timeline(recorded)).slowdown)


def test_steps_that_are_cut_off_are_left_out_and_counted() -> None:
    whole = diagnose(timeline(rows()))
    cut = rows()[: -len(rows()) // 6]  # half of the last of three steps
    found = diagnose(timeline(cut))
    assert (whole.steps, whole.steps_left_out) == (3, 0)
    assert (found.steps, found.steps_left_out) == (2, 1)


def test_two_rows_that_contradict_each_other_are_refused_by_row() -> None:
    recorded = rows()
    error = refusal([*recorded, (*recorded[7][:6], recorded[7][6] + 1.0, *recorded[7][7:])])
    assert error.row == len(recorded) and "recorded twice, with other times" in error.reason


@pytest.mark.parametrize("spare", [0, 1], ids=["each", "without the first receive"])
def test_transfers_that_were_recorded_for_computes_without_any_change_nothing(spare: int) -> None:
    """With model chunks, profilers record a send and a receive for each compute, also where nobody is."""
    job = replace(QUIET, chunks=2, stages=2)
    recorded = rows(job)
    ends = {("forward", "recv"): 0, ("backward", "send"): 0, ("forward", "send"): 3, ("backward", "recv"): 3}
    extra = []
    for row in recorded:
        for (kind, way), chunk in ends.items():
            first = (kind, way, row[7]) == ("forward", "recv", 0)
            if row[4] == f"{kind}-compute" and row[10] == chunk and not (spare and first):
                at = row[5] if way == "recv" else row[5] + row[6]
                extra.append((*row[:4], f"{kind}-{way}", at, 0.0, 0, -1, -1, -1))
    assert len(extra) > 20
    assert diagnose(timeline(numbered([*recorded, *extra]))).step_s == diagnose(timeline(recorded)).step_s


def test_transfers_that_were_never_launched_are_passed_over() -> None:
    recorded = rows()
    late = [(*row[:4], "backward-recv", 1e3, 0.0, 0, -1, -1, -1) for row in recorded if row[4] == "gc"]
    late = [row for row in late if row[1] == 0]
    assert diagnose(timeline(numbered([*recorded, *late]))).step_s == diagnose(timeline(recorded)).step_s


def numbered(recorded: list[Row]) -> list[Row]:
    """With the sequence numbers that a recorder gives: by start, per kind, worker and step."""
    counts: Counter[tuple[object, ...]] = Counter()
    found = []
    for row in sorted(recorded, key=lambda row: (row[5], row[7])):
        found.append((*row[:7], counts[row[:5]], *row[8:]))
        counts[row[:5]] += 1
    return found


def test_a_missing_stage_or_worker_is_refused_by_name() -> None:
    gone = refusal(edited(lambda row: None if row[1] == 1 else row))
    assert "stage 1 is missing" in gone.reason and gone.column == "stage"
    assert "dp_rank 2 has no operation of stage 3" in refusal(
        edited(lambda row: None if row[:2] == (2, 3) else row)
    ).reason  # fmt: skip


def test_ranks_that_do_not_name_workers_are_refused_by_row() -> None:
    two = refusal(edited(lambda row: (*row[:2], 99, *row[3:]) if row[3:5] == (10, "optimizer") else row))
    assert "has two ranks" in two.reason and two.column == "rank" and two.row >= 0
    one = refusal(edited(lambda row: (*row[:2], 0, *row[3:])))
    assert "rank 0 is recorded as two workers" in one.reason


def test_transfers_that_do_not_fit_the_computes_are_refused_by_name() -> None:
    lost = refusal(edited(lambda row: None if (row[1], row[4], row[7]) == (1, "forward-recv", 2) else row))
    assert "forward-recv of stage 1: 3 of them for 4 computes" in lost.reason
    unsent = refusal(edited(lambda row: None if (row[1], row[4]) == (0, "forward-send") else row))
    assert "forward-recv 0 of stage 1 has no send" in unsent.reason


def test_a_recording_without_computes_or_rows_is_refused() -> None:
    assert "stage 0 has neither" in refusal(edited(lambda row: None if "compute" in row[4] else row)).reason
    empty = timeline(rows())
    none = type(empty)(*(getattr(empty, name)[:0] for name in empty.__slots__))
    with pytest.raises(TimelineError, match="no operation is recorded"):
        diagnose(none)


def test_steps_of_which_none_is_whole_are_refused_with_one_that_lacks_something() -> None:
    one = [row for row in rows() if row[3] == 0]
    error = refusal([row for row in one if (row[0], row[4]) != (1, "optimizer")])
    assert error.reason.startswith("no step is whole: dp_rank 1 lacks optimizer 0 of stage")


def test_far_too_many_workers_or_operations_are_refused_before_there_is_room_for_them() -> None:
    one = rows()[0]
    wide = [(at, at, at, *one[3:]) for at in range(200)]  # 40,000 workers by their names
    assert "40000 workers cannot have 200 rows" in refusal(wide).reason
    alone = (0, 0, 0, 0, "gc", 0.0, 0.0)
    many = [(*alone, at, -1, -1, -1) for at in range(OPERATIONS_MAX + 1)]
    assert f"{OPERATIONS_MAX} at most" in refusal(many).reason


def test_a_step_in_which_no_time_passes_is_not_slow() -> None:
    still = [(*row[:5], 0.0, 0.0, *row[7:]) for row in rows(replace(QUIET, stages=1))]
    found = diagnose(timeline(still))
    assert (found.slowdown, found.worker_share, found.stage_share, found.findings) == (1.0, 0.0, 0.0, ())
