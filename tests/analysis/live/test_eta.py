"""The forecast of a job's end: right at an even pace, steady at another one, absent where nobody says it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.live.eta import KNOWN_KINDS, NO_PACE, UNKNOWN_KINDS, Eta, EtaMemory
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from holdfast.ipc.pages import training_end
from tests.analysis.live.jobs import STEPS, job, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.analysis.live.readings import JobWindow, RankWindow

END = 1000


def forecasts(
    windows: Iterable[JobWindow],
    ends: Iterable[tuple[str, int]] = (("loop", END),),
    share: float = 1.0,
    memory: EtaMemory | None = None,
) -> list[Eta]:
    """The forecast after each window, whose ranks say these ends."""
    memory, watch, found = memory or EtaMemory(), JobWatch(), []
    for window in windows:
        told = replace(window, ends=frozenset(ends))
        memory.take(told, watch.observe(told).pace)
        found.append(memory.eta(share))
    return found


def changed(**fields: Any) -> Callable[[int, int, RankWindow], RankWindow]:
    return lambda rank, window, row: row._replace(**fields)


def test_an_even_pace_ends_when_the_steps_that_are_left_are_done() -> None:
    found = forecasts(job(4, 30, noise=0.0))  # a step takes 1.1 s, and a window of five of them 10 s
    assert found[0] == Eta(None, "too early", "fewer than 10 steps were seen", END, "loop")
    for window, each in enumerate(found[1:], 1):
        assert each.at_s is not None
        left = END - STEPS * (window + 1) - 1
        assert each.at_s == pytest.approx(10.0 * (window + 1) + 1.1 * left, abs=1e-6)
        assert (each.word, each.reason, each.end_step, each.of) == ("", "", END, "loop")


def test_one_slow_window_moves_the_end_by_what_it_took_and_not_by_more() -> None:
    slow = job(4, 40, lambda _rank, window: 20.0 if window == 20 else 1.0, noise=0.0)
    found = [each.at_s or 0.0 for each in forecasts(slow)]
    even = [each.at_s or 0.0 for each in forecasts(job(4, 40, noise=0.0))]
    assert found[1:] == pytest.approx(even[1:])


def test_noise_moves_the_end_by_little() -> None:
    found = [each.at_s or 0.0 for each in forecasts(job(4, 60, noise=0.2))][20:]
    jumps = [abs(after - before) for before, after in pairwise(found)]
    assert max(jumps) < 0.02 * found[0]


def test_another_pace_is_believed_after_half_of_the_window() -> None:
    slower = job(4, 150, lambda _rank, window: 1.0 if window < 60 else 2.0, noise=0.0)
    found = forecasts(slower, (("job", 10_000),))
    left_s = [(each.at_s or 0.0) - 10.0 * (at + 1) for at, each in enumerate(found)]
    assert left_s[80] == pytest.approx(1.1 * (10_000 - 406)), "twenty of sixty windows are slower"
    assert left_s[100] == pytest.approx(2.1 * (10_000 - 506)), "forty of them are"


def test_failures_of_the_last_hour_lengthen_what_is_left() -> None:
    (whole, half) = (forecasts(job(4, 20, noise=0.0), share=share)[-1] for share in (1.0, 0.5))
    assert whole.at_s is not None and half.at_s is not None
    assert half.at_s - 200.0 == pytest.approx(2 * (whole.at_s - 200.0))


def test_evaluations_that_the_script_declares_count_as_their_mean() -> None:
    def evaluates(_rank: int, window: int, row: RankWindow) -> RankWindow:
        spent_s = 10.0 if window % 10 == 5 else 0.0
        return row._replace(evaluate_s=spent_s, wall_s=row.wall_s + spent_s, other_s=spent_s)

    (found,) = forecasts(job(4, 40, change=evaluates, noise=0.0))[-1:]
    assert found.at_s is not None
    assert found.at_s == pytest.approx(400.0 + (1.1 + 40.0 / 200) * (END - 201))


def test_steps_of_another_number_of_ranks_do_not_count() -> None:
    memory = EtaMemory()
    forecasts(job(4, 20, noise=0.0), memory=memory)
    later = [
        replace(each, began_s=each.began_s + 500, ended_s=each.ended_s + 500, generation=2,
                ranks=columns_of([row._replace(generation=2) for row in rows_of(each)]))
        for each in job(2, 4, lambda _rank, _window: 3.0, noise=0.0)
    ]  # fmt: skip
    found = forecasts(later, memory=memory)
    assert found[0].word == "too early"
    assert found[-1].at_s == pytest.approx(540.0 + 3.1 * (END - 21))


def test_the_end_stays_where_it_is_while_a_long_step_runs() -> None:
    def long(_rank: int, window: int, row: RankWindow) -> RankWindow:
        done = window // 6
        return row._replace(
            steps=int(window % 6 == 5), last_step=done, covered=int(window % 6 == 5), wall_s=60.0,
            forward_s=60.0, backward_s=0.0, optimizer_s=0.0, communication_s=0.0, data_s=0.0, cpu_s=0.0,
        )  # fmt: skip

    found = [each.at_s for each in forecasts(job(2, 120, change=long), (("loop", 100),)) if each.at_s]
    assert len(found) > 50 and max(found) - min(found) < 61.0


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ((), "older agent"),
        ((("open", 0),), "no total"),
        ((("several", 0),), "no total"),
        ((("beyond", 0),), "wrong total"),
        ((("older SDK", 0), ("loop", 5)), "older SDK"),
        ((("something", 0),), "newer agent"),
        ((("loop", 5), ("loop", 6)), "unclear"),
    ],
)
def test_without_a_total_there_is_no_end_but_a_reason(ends: tuple[tuple[str, int], ...], word: str) -> None:
    found = forecasts(job(2, 5), ends)[-1]
    assert (found.at_s, found.word, found.end_step) == (None, word, 0) and found.reason


def test_all_that_ranks_say_is_understood() -> None:
    said = {*training_end.KINDS, training_end.OLDER_SDK, training_end.NEWER_SDK}
    assert said == {*UNKNOWN_KINDS, *KNOWN_KINDS}


def test_a_window_in_which_no_rank_of_the_generation_reported_changes_nothing() -> None:
    memory = EtaMemory()
    before = forecasts(job(2, 5, noise=0.0), memory=memory)[-1]
    memory.take(replace(job(2, 6)[-1], ends=None), NO_PACE)
    assert memory.eta(1.0) == before and before.at_s is not None


def test_ends_in_units_of_a_trainer_may_differ_by_what_each_rank_has_done() -> None:
    found = forecasts(job(2, 5, noise=0.0), (("trainer", 99), ("trainer", 100)))[-1]
    assert (found.end_step, found.of) == (100, "trainer") and found.at_s is not None
    assert forecasts(job(2, 5), (("trainer", 99), ("loop", 100)))[-1].word == "unclear"


def test_a_job_beyond_its_end_ends_now() -> None:
    found = forecasts(job(2, 5, noise=0.0), (("loop", 3),))[-1]
    assert found.at_s == 50.0
