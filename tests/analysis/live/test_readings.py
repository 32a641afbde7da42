"""Rows that cannot be believed are left out and named; windows that cannot be are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.registry import DETECTORS, KINDS
from controlplane.analysis.live.readings import JobWindow, RankWindow
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch, LiveDiagnosis
from tests.analysis.live.jobs import STEPS, job, opened, row, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.core.state.findings import Finding

NAN = float("nan")


def with_row(window: JobWindow, at: int, **changed: Any) -> JobWindow:
    rows = [each._replace(**changed) if each.rank == at else each for each in rows_of(window)]
    return replace(window, ranks=columns_of(rows))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"forward_s": NAN}, "no finite number"),
        ({"wall_s": float("inf")}, "no finite number"),
        ({"backward_s": -1.0}, "negative"),
        ({"memory_bytes": -1}, "negative"),
        ({"device_used": -2.0}, "negative"),
        ({"generation": 2}, "another generation"),
        ({"steps": 0}, "completed no step"),
        ({"wall_s": 0.0}, "no time passed"),
        ({"forward_s": 100.0}, "do not add up"),
        ({"wall_s": 100.0}, "do not add up"),
        ({"cpu_s": 100.0}, "CPU time is longer"),
        ({"last_step": 3}, "not newer"),
        ({"last_step": STEPS * 10}, "not newer"),
        ({"covered": 0}, "hooks do not tell"),
        ({"rank": 99}, "no such rank"),
        ({"rank": -1}, "no such rank"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_believed_is_left_out_and_named(changed: dict[str, Any], reason: str) -> None:
    windows = job(8, 14)
    windows[10] = with_row(windows[10], 5, **changed)
    found = watched(windows)
    at = found[10]
    (named,) = [each for each in at.unjudged if reason in each.reason]
    assert named.rank == changed.get("rank", 5)
    assert at.anatomy is not None
    assert at.ranks_judged == 7 and at.judged is (changed.get("steps") != 0) and 5 not in at.anatomy.ranks
    with pytest.raises(KeyError, match="rank 5 was not judged"):
        at.anatomy.row(5)
    assert found[11].ranks_judged == 8 and opened(found) == []


def test_a_rank_that_reports_late_or_not_at_all_is_left_out() -> None:
    windows = job(8, 14)
    (named,) = watched([*windows[:6], with_row(windows[13], 2, last_step=9 * STEPS)])[-1].unjudged
    assert (named.rank, "many steps ahead" in named.reason) == (2, True)
    silent = [replace(each, ranks=columns_of(rows_of(each)[:-1])) for each in windows]
    (named,) = watched(silent)[-1].unjudged
    assert (named.rank, named.reason) == (7, "it did not report")
    twice = replace(windows[0], ranks=columns_of([*rows_of(windows[0]), rows_of(windows[0])[3]]))
    (named,) = watched([twice])[-1].unjudged
    assert (named.rank, "several rows" in named.reason) == (3, True)


def test_ranks_left_out_are_counted_when_there_are_too_many_to_name() -> None:
    window = JobWindow("j", 1, 0.0, 10.0, columns_of([row(0, 0, 1.0, 1.1)]), 5000)
    (found,) = watched([window])
    assert len(found.unjudged) == policy.UNJUDGED_MAX < found.out.sum()
    assert found.left_out == {"it did not report": 4999}


def test_a_job_that_reports_nothing_is_not_judged() -> None:
    found = watched(JobWindow("j", 1, 10.0 * at, 10.0 * at + 10, columns_of([]), 8) for at in range(10))
    assert not any(each.judged for each in found)
    assert found[-1].anatomy is not None and found[-1].anatomy.ranks == ()
    assert found[-1].slowdown == 1.0 and found[-1].loss_s == 0.0


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ({"began_s": 500.0, "ended_s": 500.0}, "ends at 500"),
        ({"began_s": NAN}, "ends at"),
        ({"ended_s": 55.0, "began_s": 40.0}, "not after the one before"),
        ({"generation": 0}, "generation 0, and 1 has begun"),
        ({"ranks_expected": 0}, "ranks_expected is 0"),
        ({"ranks_expected": policy.RANKS_MAX + 1}, "must be 1 to"),
    ],
)  # fmt: skip
def test_a_window_that_cannot_be_is_refused_and_changes_nothing(window: dict[str, Any], reason: str) -> None:
    windows = job(4, 12)
    watch = JobWatch()
    watched(windows[:6], watch)
    with pytest.raises(ValueError, match=reason):
        watch.observe(replace(windows[6], **window))
    assert watched(windows[6:], watch)[-1].judged


def test_a_new_generation_begins_with_an_empty_memory() -> None:
    watch = JobWatch()
    slow = job(8, 20, own=lambda rank, window: 1.6 if rank == 3 else 1.0)
    assert watched(slow, watch)[-1].findings
    after = [
        replace(
            each,
            generation=2,
            began_s=each.began_s + 200.0,
            ended_s=each.ended_s + 200.0,
            ranks_expected=7,
            ranks=columns_of([one._replace(generation=2) for one in rows_of(each)[:7]]),
        )
        for each in job(8, 20)
    ]
    found = watched(after, watch)
    assert [each.judged for each in found].index(True) == policy.WARM_UP + policy.LEAST - 1
    assert not any(each.findings for each in found)


def test_another_number_of_ranks_begins_anew_too() -> None:
    watch = JobWatch()
    watched(job(8, 12), watch)
    fewer = [replace(each, began_s=each.began_s + 120, ended_s=each.ended_s + 120) for each in job(4, 12)]
    found = watched(fewer, watch)
    assert not found[0].judged and found[-1].judged and found[-1].ranks_judged == 4


def test_steps_may_last_longer_than_windows() -> None:
    """Each rank completes a step in every third window only, and not all in the same one."""
    windows = job(8, 90, own=lambda rank, window: 1.6 if rank == 3 and window > 30 else 1.0)
    late = [
        replace(
            each,
            ranks=columns_of(
                [one if (at + (one.rank % 2)) % 3 == 0 else one._replace(steps=0) for one in rows_of(each)]
            ),
        )
        for at, each in enumerate(windows)
    ]
    found = watched(late)
    assert sum(each.judged for each in found) >= 20
    (finding,) = opened(found)
    assert (finding.kind, dict(finding.place)["rank"]) == ("slow_rank", 3)


def test_ranks_whose_hooks_tell_nothing_are_compared_when_all_are_alike() -> None:
    def bare(rank: int, window: int, one: RankWindow) -> RankWindow:
        return one._replace(covered=0)

    assert watched(job(8, 12, change=bare))[-1].ranks_judged == 8


@pytest.mark.parametrize("every", [1, 3, 27, 300])
def test_a_rank_whose_hooks_tell_nothing_is_not_slow_where_only_some_steps_are_measured(every: int) -> None:
    """Of short steps one in `every` is measured. As with a model that one rank alone has compiled: its waits
    for the others count as its own work, and it was called slow."""

    def measured(rank: int, window: int, one: RankWindow) -> RankWindow:
        told = (500 * (window + 1) + rank) // every - (500 * window + rank) // every
        seen = one._replace(steps=500, last_step=500 * (window + 1), covered=told)
        if rank != 2 or window < 3:
            return seen
        waited_s = seen.forward_s + seen.backward_s + seen.optimizer_s + seen.communication_s
        alone = seen._replace(forward_s=0.0, backward_s=0.0, optimizer_s=0.0, communication_s=0.0)
        return alone._replace(covered=0, other_s=waited_s)

    windows = job(4, 60, own=lambda rank, window: 0.1 if rank == 2 else 0.2, change=measured)
    found = watched(windows)
    assert opened(found) == []
    assert all(each.ranks_judged == 3 for each in found[12:])
    assert "hooks do not tell" in found[-1].unjudged[0].reason and found[-1].unjudged[0].rank == 2


def test_ranks_that_do_not_measure_the_same_steps_are_all_judged() -> None:
    random = Random(3)

    def measured(rank: int, window: int, one: RankWindow) -> RankWindow:
        return one._replace(covered=int(random.random() < 0.2))

    found = watched(job(8, 200, change=measured))
    assert sum(8 - each.ranks_judged for each in found) <= 0.05 * 8 * len(found)


def test_a_detector_that_raises_is_named_and_the_others_go_on() -> None:
    def broken(situation: LiveSituation) -> Iterable[Finding]:
        raise ZeroDivisionError("by zero")

    watch = JobWatch(detectors={"broken": broken, **DETECTORS})
    windows = job(8, 20, own=lambda rank, window: 1.6 if rank == 3 else 1.0)
    found: list[LiveDiagnosis] = [watch.observe(each) for each in windows]
    (failed,) = found[-1].failed_detectors
    assert failed.name == "broken" and failed.error.startswith("ZeroDivisionError: by zero (line ")
    assert [each.kind for each in found[-1].findings] == ["slow_rank"]


@pytest.mark.parametrize(
    ("name", "broken", "unseen"),
    [
        ("efficiency", {"work": (None,)}, set()),
        ("storage", {"storage": (None,)}, {"slow_storage"}),
        ("disks", {"disks": (None,)}, {"disk_filling"}),
        ("nodes_at_risk", {"nodes": (None,)}, {"node_at_risk"}),
        ("gradients", {"gradients": (None,)}, {"non_finite", "loss_spike"}),
    ],
)
def test_any_part_that_raises_is_named_and_the_others_go_on(
    name: str, broken: dict[str, Any], unseen: set[str]
) -> None:
    watch = JobWatch()
    windows = job(8, 20, own=lambda rank, window: 1.6 if rank == 3 else 1.0)
    found = [watch.observe(each) for each in windows[:-1]]
    last = watch.observe(replace(windows[-1], **broken))
    assert not any(each.failed_detectors for each in found)
    assert name in [each.name for each in last.failed_detectors], last.failed_detectors
    assert [each.kind for each in last.findings] == ["slow_rank"] and last.slowdown > 1.4
    assert unseen <= last.unseen


def test_every_kind_that_is_found_has_its_detector_named() -> None:
    assert set(DETECTORS) <= set(KINDS)
