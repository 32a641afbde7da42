"""Steps that grow slowly over hours are found; longer sequences and healthy noise are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.diagnosis.live.step_growth import alarms_s, found_after_s, healthy
from benchmarks.diagnosis.metrics import FAMILIES
from controlplane.analysis.live.detectors.step_growth import data_wait_grows, step_time_grows
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from tests.analysis.live.jobs import STEPS, job, opened, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import JobWindow, RankWindow
    from controlplane.core.state.findings import Finding

HOUR = 60
"""Windows of a minute."""
DAY = 24 * HOUR


def growing(
    per_hour: float,
    phase: str = "forward_s",
    change: Callable[[RankWindow, float], RankWindow] = lambda row, grown: row,
) -> list[JobWindow]:
    """A job whose steps grow by this share per hour for eight hours, when a day was learnt from."""

    def grow(rank: int, window: int, row: RankWindow) -> RankWindow:
        grown = max(0.0, (window - DAY - 2 * HOUR) / HOUR * per_hour)
        more_s = grown * 1.1 * STEPS
        more: dict[str, Any] = {phase: getattr(row, phase) + more_s, "wall_s": row.wall_s + more_s}
        return change(row._replace(**more), grown)

    windows = job(2, DAY + 10 * HOUR, change=grow)
    return [replace(each, began_s=6.0 * each.began_s, ended_s=6.0 * each.ended_s) for each in windows]


def found(windows: list[JobWindow]) -> list[Finding]:
    return opened(watched(windows, JobWatch(detectors={"step_time_grows": step_time_grows})))


BOTH = {"data_wait_grows": data_wait_grows, "step_time_grows": step_time_grows}


def test_a_growing_wait_for_samples_is_found_before_it_is_a_bottleneck_and_says_when_it_is() -> None:
    diagnoses = watched(growing(0.02, "data_s"), JobWatch(detectors=BOTH))
    (finding,) = opened(diagnoses)
    assert (finding.kind, finding.subject) == ("data_wait_grows", "")
    evidence = {name: float(value) for name, value in finding.evidence}
    assert evidence["usual_data_share_ratio"] < 0.03 and 0.06 < evidence["data_share_ratio"] < 0.15
    ended_s = next(each.ended_s for each in diagnoses if each.findings)
    assert ended_s < evidence["bottleneck_earliest_s"] < evidence["bottleneck_at_s"]
    truth_s = 60.0 * (DAY + 2 * HOUR + 60 * (0.15 - 0.018) / 0.02 / 0.85)
    assert evidence["bottleneck_at_s"] == pytest.approx(truth_s, abs=3600.0)
    assert all(
        float(dict(each.evidence).get("bottleneck_at_s", 1e9)) > diagnosis.ended_s
        for diagnosis in diagnoses
        for each in diagnosis.findings
    ), "what is over is not foreseen"


def test_a_wait_for_samples_that_is_a_bottleneck_is_left_to_others() -> None:
    diagnoses = watched(growing(0.06, "data_s"), JobWatch(detectors=BOTH))
    assert [each.kind for each in opened(diagnoses)] == ["data_wait_grows", "step_time_grows"]
    assert [each.kind for each in diagnoses[-1].findings] == ["step_time_grows"]


def test_waits_for_samples_of_steps_that_grow_otherwise_are_no_finding() -> None:
    assert [each.kind for each in opened(watched(growing(0.06), JobWatch(detectors=BOTH)))] == [
        "step_time_grows"
    ]


@pytest.mark.parametrize(("phase", "word"), [("forward_s", "forward"), ("data_s", "data")])
def test_steps_that_grow_by_six_percent_an_hour_are_found_with_what_has_grown(phase: str, word: str) -> None:
    (finding,) = found(growing(0.06, phase))
    assert finding.kind == "step_time_grows" and finding.subject == ""
    assert f"are {word} time" in finding.reason
    evidence = dict(finding.evidence)
    assert evidence["main_phase"] == word and 1.0 < float(evidence["usual_step_s"]) < 1.3
    assert float(evidence["growth_s_per_hour"]) == pytest.approx(0.066, rel=0.3)


def test_longer_sequences_explain_longer_steps() -> None:
    assert not found(growing(0.06, change=lambda row, grown: row._replace(tokens=1e4 * (1.0 + grown))))


def test_a_new_generation_goes_on_with_what_was_learnt() -> None:
    def anew(window: JobWindow) -> JobWindow:
        rows = [each._replace(generation=2) for each in rows_of(window)]
        return replace(window, generation=2, ranks=columns_of(rows))

    windows, failed = growing(0.06), DAY + 4 * HOUR
    assert len(found([*windows[:failed], *map(anew, windows[failed:])])) == 1


@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "levels that take turns"])
def test_healthy_steps_are_not_called_so(family: str) -> None:
    quiet = healthy(family, 77, 4.0, 0.03).tolist()
    assert not alarms_s(quiet) and not alarms_s(quiet, data=True)


def test_growth_is_found_before_it_has_cost_a_third() -> None:
    assert found_after_s("Gaussian", 5, 0.03, 0.03) < 11 * 3600
    assert found_after_s("Gaussian", 5, 0.03, 0.03, data=True) < 5 * 3600
