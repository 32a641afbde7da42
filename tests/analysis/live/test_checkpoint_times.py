"""Checkpoints that take longer: found, forecast, and not found where they only differ."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.live.resources.storage import NodeStorage
from controlplane.analysis.live.table import columns_of
from tests.analysis.live.jobs import job, opened, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import JobWindow


def with_checkpoints(took_s: Callable[[int], float], count: int = 60, ranks: int = 2) -> list[JobWindow]:
    """Windows of 10 s, with a new checkpoint in every sixth."""
    return [
        replace(window, checkpoints=1 + at // 6, checkpoint_took_s=took_s(at // 6), checkpoint_every_s=100.0)
        for at, window in enumerate(job(ranks, 6 * count))
    ]


def test_checkpoints_that_take_longer_and_longer_are_forecast() -> None:
    windows = with_checkpoints(lambda at: 20.0 + 0.1 * (at % 5) + 1.0 * max(0, at - 20))
    (finding,) = opened(watched(windows))
    assert (finding.kind, finding.subject) == ("checkpoint_time_grows", "")
    last = next(
        each for each in reversed(watched(windows)[-1].findings) if each.kind == "checkpoint_time_grows"
    )
    evidence = dict(last.evidence)
    assert evidence["growth_s_per_hour"] == pytest.approx(60.0, rel=0.05)
    assert evidence["interval_reached_at_s"] == pytest.approx(60.0 * 100, rel=0.03)
    assert "takes as long as the 100 s between two checkpoints" in last.reason and last.recommendation


def test_a_forecast_that_has_passed_is_not_told() -> None:
    windows = with_checkpoints(lambda at: 20.0 + 0.1 * (at % 5) + 1.0 * max(0, at - 20), count=115)
    newest = windows[6 * 96]  # the next checkpoints do not end
    stuck = [replace(window, checkpoints=newest.checkpoints) for window in windows[6 * 96 :]]
    last = next(
        each
        for each in reversed(watched([*windows[: 6 * 96], *stuck])[-1].findings)
        if each.kind == "checkpoint_time_grows"
    )
    assert "interval_reached_at_s" not in dict(last.evidence) and " in -" not in last.reason


@pytest.mark.parametrize("seed", range(3))
def test_checkpoints_of_uneven_duration_are_no_finding(seed: int) -> None:
    chance = Random(seed)
    took = [20.0 * math.exp(chance.gauss(0.0, 0.25)) for _ in range(60)]
    assert opened(watched(with_checkpoints(lambda at: took[at]))) == []


@pytest.mark.parametrize(
    ("slower", "more", "words"),
    [
        (2.0, 1.0, "a byte takes 2 times as long to write"),
        (1.0, 2.0, "a node writes 2 times as many bytes"),
        (1.0, 1.0, "neither the bytes nor the time to write one"),
    ],
)
def test_it_says_whether_the_storage_is_slower_or_has_more_to_write(
    slower: float, more: float, words: str
) -> None:
    def written(window: JobWindow) -> JobWindow:
        late = window.checkpoints > 30
        nbytes = 2.0**30 / 6 * (more if late else 1.0)
        write_s = nbytes / 1e8 * (slower if late else 1.0)
        return replace(window, storage=(NodeStorage("n0", nbytes, write_s, 0.0, 0.0),))

    windows = with_checkpoints(lambda at: 20.0 + 0.1 * (at % 5) + 20.0 * (at > 30))
    (finding,) = [each for each in opened(watched(map(written, windows))) if each.kind != "slow_storage"]
    assert finding.kind == "checkpoint_time_grows" and words in finding.reason
    evidence = dict(finding.evidence)
    assert evidence["write_s_per_byte_ratio"] == pytest.approx(slower, rel=0.05)
    assert evidence["bytes_ratio"] == pytest.approx(more, rel=0.05)


def test_another_number_of_ranks_writes_other_checkpoints() -> None:
    """A job that shrinks to half writes twice as much per rank: that is learnt anew."""
    before = with_checkpoints(lambda at: 20.0 + 0.1 * (at % 5), 30, ranks=4)
    after = [
        replace(
            each,
            generation=2,
            began_s=each.began_s + 1800.0,
            ended_s=each.ended_s + 1800.0,
            checkpoints=each.checkpoints + 30,
            ranks=columns_of([row._replace(generation=2) for row in rows_of(each)]),
        )
        for each in with_checkpoints(lambda at: 40.0 + 0.1 * (at % 5), 30)
    ]
    assert opened(watched([*before, *after])) == []
