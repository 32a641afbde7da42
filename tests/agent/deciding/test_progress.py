"""Progress judged by its own history: what is slow, what is declared, and what is stalled."""

from __future__ import annotations

import pytest

from agent.deciding.progress import HangLimits, PageReading, ProgressWatch, Resumed, Stalled

LIMITS = HangLimits(factor=10.0, floor_s=60.0, first_s=600.0)


def watched(*gaps: float, limits: HangLimits = LIMITS) -> ProgressWatch:
    """A job whose steps have taken so long, one look each."""
    progress, now = ProgressWatch(limits), 0.0
    for gap in gaps:
        now += gap
        progress.begin(now)
        assert progress.look(PageReading("a", "j", "step", now, (("step", gap),)), reported=False) is None
    return progress


def limit(progress: ProgressWatch, activity: str, asked_s: float = 0.0) -> float:
    return progress.limit_s(PageReading("a", "j", activity, 0.0, (), asked_s))


def test_fast_steps_have_the_floor_and_slow_ones_a_multiple_of_their_pace() -> None:
    assert limit(watched(*[0.1] * 20), "step") == 60.0
    assert limit(watched(*[30.0] * 20), "step") == 300.0


def test_hiccups_count_and_a_single_outlier_does_not() -> None:
    often = watched(*([1.0] * 8 + [20.0]) * 20)
    assert limit(often, "step") == 200.0
    assert limit(watched(*[7.0] * 99, 500.0), "step") == 70.0


def test_the_first_step_has_its_own_time_until_one_is_known() -> None:
    progress = watched(1.0)
    assert limit(progress, "first") == 600.0
    progress.begin(2.0)
    progress.look(PageReading("b", "j", "step", 2.0, (("first", 40.0),)), reported=False)
    assert limit(progress, "first") == 400.0, "that of the other rank, too: it is the job's pace"


def first_step(*gaps: tuple[str, float], now_in: str) -> ProgressWatch:
    """A job of which one rank has made these marks."""
    progress = ProgressWatch(LIMITS)
    progress.begin(100.0)
    progress.look(PageReading("a", "j", now_in, 100.0, gaps), reported=False)
    return progress


def test_a_part_of_the_first_step_does_not_say_how_long_a_first_step_takes() -> None:
    building, loading = ("first", 2.0), ("data", 5.0)
    assert limit(first_step(building, now_in="first"), "first") == 600.0
    assert limit(first_step(building, ("first", 1.0), loading, now_in="first"), "first") == 600.0
    progress = first_step(building, ("first", 1.0), loading, ("first", 37.0), now_in="step")
    assert limit(progress, "first") == 400.0, "all its parts together, without what was declared"


@pytest.mark.parametrize("ended", ["none", "after", "fault"])
def test_a_first_step_that_was_broken_off_does_not_say_it_either(ended: str) -> None:
    progress = first_step(("first", 2.0), now_in=ended)
    assert limit(progress, "first") == 600.0
    progress.begin(200.0)
    progress.look(PageReading("a", "j", "step", 200.0, ((ended, 9.0), ("first", 50.0))), reported=False)
    assert limit(progress, "first") == 500.0


def test_a_compilation_has_at_least_the_time_of_a_first_step_until_one_is_known() -> None:
    progress = watched(1.0, limits=HangLimits(factor=10.0, floor_s=2.0, first_s=600.0))
    assert limit(progress, "compile") == 600.0
    progress.begin(2.0)
    progress.look(PageReading("b", "j", "step", 2.0, (("compile", 40.0),)), reported=False)
    assert limit(progress, "compile") == 400.0


@pytest.mark.parametrize(
    ("activity", "seconds"),
    [("data", 600.0), ("checkpoint", 1800.0), ("compile", 3600.0), ("evaluate", 3600.0), ("after", 3600.0)],
)
def test_declared_phases_are_generous(activity: str, seconds: float) -> None:
    assert limit(watched(1.0), activity) == seconds
    assert limit(watched(1.0), activity, asked_s=5.0) == 5.0, "the script knows better"


def test_what_is_no_training_is_not_judged() -> None:
    progress = ProgressWatch(LIMITS)
    for now in (0.0, 1e6):
        progress.begin(now)
        assert progress.look(PageReading("a", "j", "none", 0.0), reported=False) is None


def test_a_factor_of_nothing_judges_nobody() -> None:
    assert limit(watched(1.0, limits=HangLimits(0.0, 60.0, 600.0)), "step") == float("inf")


def sights(
    progress: ProgressWatch, since: float, until: float, start: float | None = None
) -> list[tuple[float, Stalled | Resumed]]:
    """Looks every quarter of a second, from `start` on, at a rank that made its last mark at `since`."""
    found: list[tuple[float, Stalled | Resumed]] = []
    now = since if start is None else start
    while now < until:
        progress.begin(now)
        change = progress.look(PageReading("a", "j", "step", since), reported=bool(found))
        found += [(now, change)] if change else []
        now += 0.25
    return found


def test_a_stalled_rank_is_told_once_and_told_when_it_gets_on() -> None:
    progress = watched(1.0, 1.0)
    assert sights(progress, 2.0, 100.0) == [(62.0, Stalled("a", "step", 60.0, 60.0))]
    progress.begin(100.0)
    assert progress.look(PageReading("a", "j", "step", 99.9, (("step", 97.9),)), reported=True) == Resumed(
        "a"
    )


def test_time_in_which_the_agent_itself_stood_still_is_given_back() -> None:
    progress = watched(1.0, 1.0)
    assert sights(progress, 2.0, 50.0) == []
    found = sights(progress, 2.0, 620.0, start=550.0)
    assert [type(change) for _, change in found] == [Stalled]
    assert found[0][0] == pytest.approx(562.0, abs=0.5)


def test_what_is_gone_is_forgotten() -> None:
    progress = watched(*[30.0] * 20)
    progress.forget(set(), set())
    assert limit(progress, "step") == 60.0
