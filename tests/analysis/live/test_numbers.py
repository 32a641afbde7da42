"""Losses and gradients of made-up jobs: what is found in them, whom it names, and what is not believed."""

from __future__ import annotations

import dataclasses
import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.live.numbers import NumberMemory
from controlplane.core.records.diagnosis import GradientReport, ParameterGradient
from controlplane.core.state.findings import Level
from tests.analysis.live.jobs import job, opened, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.state.findings import Finding

RANKS, WINDOWS, EVERY = 4, 40, 10
Change = "Callable[[GradientReport], GradientReport]"


def row(name: str, norm: float, usual: float = 1.0, **changed: Any) -> ParameterGradient:
    whole = ParameterGradient(name, 100, norm, 0.0, norm / 10.0, -norm, norm, 0, 0, 0, usual)
    return dataclasses.replace(whole, **changed)


def report(rank: int, step: int, random: Random) -> GradientReport:
    """A healthy rank: a norm of about 1, a loss that falls slowly."""
    norm = math.exp(random.gauss(0.0, 0.1))
    return GradientReport(
        node=f"n{rank // 4}",
        incarnation=1,
        job="j",
        member=f"m{rank}",
        rank=rank,
        generation=1,
        step=step,
        parameters=2,
        numel=200,
        norm=norm,
        local_norm=1.5 * norm,
        local_bad=0,
        samples=8,
        loss=4.0 * (step + 50.0) ** -0.3 * (1.0 + random.gauss(0.0, 0.01)),
        loss_state="known",
        rows=(row("head.weight", 0.8 * norm), row("body.weight", 0.6 * norm)),
    )


def findings(
    change: Callable[[GradientReport], GradientReport] = lambda each: each,
    *,
    ranks: int = RANKS,
    windows: int = WINDOWS,
    per_window: int = 2,
) -> list[Finding]:
    """What opens in a healthy job of slow steps whose reports are changed."""
    random, found = Random(3), []
    for index, window in enumerate(job(ranks, windows)):
        steps = [EVERY * (index * per_window + each) for each in range(per_window)]
        reports = tuple(change(report(rank, step, random)) for step in steps for rank in range(ranks))
        found.append(dataclasses.replace(window, gradients=reports))
    return opened(watched(found))


def bad(each: GradientReport, **changed: Any) -> GradientReport:
    """A report whose gradients are all NaN."""
    broken = {"nans": 200, "norm": 0.0, "local_norm": -1.0, "local_bad": -1, "loss": 0.0, "loss_state": "nan"}
    return dataclasses.replace(each, **{**broken, "trace": "unknown", **changed})


def only(found: list[Finding]) -> Finding:
    (one,) = found
    assert one.evidence and one.recommendations and one.reason
    return one


def test_a_healthy_job_has_no_finding() -> None:
    assert findings() == []
    assert findings(ranks=1) == []


def test_nan_is_traced_to_module_and_rank_and_nobody_else_is_named() -> None:
    def change(each: GradientReport) -> GradientReport:
        if each.step < 200:
            return each
        if each.rank == 2:
            return bad(
                each, trace="module", origin="blocks.1.network", words="module blocks.1.network is first"
            )
        return bad(each)

    found = only(findings(change))
    assert (found.kind, found.level, dict(found.place)["rank"]) == ("non_finite", Level.CRITICAL, 2)
    assert "blocks.1.network" in found.reason and "blocks.1.network" in found.recommendation
    assert found.first_step == 200 and found.confidence > 0.9


def test_without_a_trace_the_rank_whose_own_gradient_was_bad_is_named() -> None:
    def change(each: GradientReport) -> GradientReport:
        return each if each.step != 200 else bad(each, local_bad=int(each.rank == 1))

    found = only(findings(change))
    assert dict(found.place)["rank"] == 1 and "not known" in found.reason


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_nan_on_all_ranks_alike_names_nobody_and_says_what_is_not_known(ranks: int) -> None:
    found = only(findings(lambda each: each if each.step < 200 else bad(each), ranks=ranks))
    assert (found.kind, found.place, found.subject) == ("non_finite", (), "")
    assert "not known" in found.reason and "session.check(loss)" in found.recommendation


@pytest.mark.parametrize(
    ("trace", "word"),
    [("inputs", "data"), ("weights", "checkpoint"), ("loss", "loss"), ("backward", "backward")],
)
def test_each_kind_of_trace_has_its_own_advice(trace: str, word: str) -> None:
    def change(each: GradientReport) -> GradientReport:
        traced = each.rank == 0
        return each if each.step != 200 else bad(each, trace=trace if traced else "unknown", origin="fc")

    assert word in only(findings(change)).recommendation


def test_an_explosion_names_step_and_parameter_and_says_where_to_clip() -> None:
    def change(each: GradientReport) -> GradientReport:
        if each.step != 300:
            return each
        return dataclasses.replace(each, norm=60.0, rows=(row("head.weight", 59.0), row("body.weight", 0.9)))

    found = only(findings(change))
    assert (found.kind, found.level, found.first_step) == ("exploding_gradients", Level.DEGRADED, 300)
    assert "head.weight (59 times)" in found.reason and "body.weight" not in found.reason
    assert "clip_grad_norm_(model.parameters(), 2" in found.recommendation


def test_an_explosion_with_a_loss_to_match_points_to_the_data_first() -> None:
    def change(each: GradientReport) -> GradientReport:
        return each if each.step != 300 else dataclasses.replace(each, norm=60.0, loss=9.0)

    found = {each.kind: each for each in findings(change)}
    assert set(found) == {"exploding_gradients", "loss_spike"}
    assert "samples of step 300" in found["exploding_gradients"].recommendation


def test_large_norms_from_the_beginning_point_to_the_loss() -> None:
    def change(each: GradientReport) -> GradientReport:
        rows = tuple(dataclasses.replace(one, norm=500.0 * one.norm) for one in each.rows)
        return dataclasses.replace(each, norm=500.0 * each.norm, rows=rows)

    found = only(findings(change))
    assert found.kind == "exploding_gradients" and "above 100" in found.reason
    assert found.recommendation.startswith("Scale the loss")


def test_vanishing_gradients_name_parameters_and_tell_dead_from_small() -> None:
    def change(each: GradientReport) -> GradientReport:
        dead, small = row("dead.weight", 0.0, zeros=100), row("first.weight", 1e-10)
        return dataclasses.replace(each, vanishing=2, rows=(*each.rows, dead, small))

    found = only(findings(change))
    assert (found.kind, found.level) == ("vanishing_gradients", Level.DEGRADED)
    assert "dead.weight (all values 0)" in found.reason and "first.weight (1e-10)" in found.reason
    assert [("dead" in each.action, "first" in each.action) for each in found.recommendations] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_gradient_that_vanishes_as_a_whole_is_critical() -> None:
    def change(each: GradientReport) -> GradientReport:
        rows = tuple(dataclasses.replace(one, norm=1e-12) for one in each.rows)
        return dataclasses.replace(each, norm=1e-12, vanishing=2, rows=rows)

    found = [each for each in findings(change) if each.kind == "vanishing_gradients"]
    assert only(found).level is Level.CRITICAL


def test_a_spike_is_told_from_a_jump_that_stays() -> None:
    def spike(each: GradientReport) -> GradientReport:
        return each if each.step != 300 else dataclasses.replace(each, loss=5.0)

    def jump(each: GradientReport) -> GradientReport:
        return each if each.step < 300 else dataclasses.replace(each, loss=5.0 + each.loss)

    one, other = only(findings(spike)), only(findings(jump))
    assert (one.kind, one.level, other.level) == ("loss_spike", Level.DEGRADED, Level.CRITICAL)
    assert "in one measured step" in one.reason and "stays high" in other.reason
    assert "checkpoint before step" in other.recommendation and "samples of step 300" in one.recommendation


def test_a_plateau_after_a_fall_is_found_and_says_whether_noise_is_to_blame() -> None:
    def change(each: GradientReport) -> GradientReport:
        random = Random(each.step)
        loss = 3.0 - each.step / 500.0 if each.step < 500 else 2.0
        return dataclasses.replace(each, loss=loss + random.gauss(0.0, 0.002))

    found = only(findings(change, windows=200))
    assert (found.kind, found.level) == ("loss_plateau", Level.DEGRADED)
    evidence = dict(found.evidence)
    assert isinstance(evidence["noise_scale_samples"], float) and evidence["batch_samples"] == 32.0


def measured(ranks: int, **changed: Any) -> NumberMemory:
    memory, random = NumberMemory(), Random(5)
    for step in range(0, 400, EVERY):
        reports = [dataclasses.replace(report(rank, step, random), **changed) for rank in range(ranks)]
        memory.take(reports)
    return memory


def test_the_noise_scale_is_that_of_the_paper() -> None:
    found = measured(4, norm=1.0, local_norm=2.0).noise_scale(4)
    signal, noise = (32 * 1.0 - 8 * 4.0) / 24, (4.0 - 1.0) / (1 / 8 - 1 / 32)
    assert signal == 0.0 and math.isnan(found.samples) and "scatter" in found.reason
    found = measured(4, norm=1.0, local_norm=1.5).noise_scale(4)
    signal, noise = (32 * 1.0 - 8 * 2.25) / 24, (2.25 - 1.0) / (1 / 8 - 1 / 32)
    assert found.samples == pytest.approx(noise / signal) and found.batch == 32.0


@pytest.mark.parametrize(
    ("ranks", "changed"),
    [(1, {}), (4, {"local_norm": -1.0}), (4, {"samples": 0}), (4, {"sharded": True}), (4, {"clipped": True})],
)
def test_a_noise_scale_that_cannot_be_known_is_not_made_up(ranks: int, changed: dict[str, Any]) -> None:
    found = measured(ranks, **changed).noise_scale(ranks)
    assert math.isnan(found.samples) and found.reason


@pytest.mark.parametrize(
    "changed",
    [
        {"norm": math.nan},
        {"norm": -1.0},
        {"loss": math.inf},
        {"rank": -1},
        {"step": -1},
        {"nans": 300},
        {"rows": (row("w", math.nan),)},
        {"rows": (row("w", -1.0),)},
    ],
)
def test_a_report_that_cannot_be_is_left_out(changed: dict[str, Any]) -> None:
    memory = NumberMemory()
    memory.take([dataclasses.replace(report(0, 5, Random(1)), **changed)])
    assert (memory.steps, memory.left_out) == ([], 1)


def test_absurd_values_bring_no_detector_down() -> None:
    def change(each: GradientReport) -> GradientReport:
        extreme = [0.0, 9e14, 1e-300][each.step // EVERY % 3]
        return dataclasses.replace(each, norm=extreme, loss=-extreme, rank=each.rank * 1000, rows=())

    assert all(each.kind in ("exploding_gradients", "loss_spike") for each in findings(change))


def test_steps_that_run_again_replace_what_they_were() -> None:
    memory, random = NumberMemory(), Random(1)
    memory.take([report(0, step, random) for step in (10, 20, 30)])
    memory.take([dataclasses.replace(report(0, 20, random), generation=2, loss=7.0)])
    assert [(each.step, each.generation) for each in memory.steps] == [(10, 1), (20, 2)]
    memory.take([report(0, 20, random)])
    assert memory.steps[-1].loss == 7.0, "a late report of the older generation changes nothing"


def test_shards_are_added_up_and_said_to_be() -> None:
    memory = NumberMemory()
    memory.take([dataclasses.replace(report(r, 10, Random(1)), sharded=True, norm=3.0 + r) for r in (0, 1)])
    assert memory.steps[0].norm == pytest.approx(5.0)


def told(loss: float, **changed: Any) -> GradientReport:
    return GradientReport("n0", 1, "j", "m0", 0, 1, 7, **{"loss": loss, "loss_state": "known", **changed})


def test_a_loss_that_is_only_told_is_shown_and_nothing_is_found_in_it() -> None:
    memory = NumberMemory()
    memory.take([told(math.inf), told(1.0, loss_state="unknown")])
    assert memory.summary(1) is None
    memory.take([told(2.0), told(1.5)])
    found = memory.summary(1)
    assert found is not None
    assert (found.loss, math.isnan(found.norm), found.parameters) == (1.5, True, ())
    assert (memory.steps, len(memory.losses.values)) == ([], 0)


@pytest.mark.parametrize("state", ["nan", "inf", "unknown"])
def test_a_loss_that_is_told_does_not_outlive_a_newer_one_without_a_number(state: str) -> None:
    memory = NumberMemory()
    memory.take([told(2.0), told(0.0, loss_state=state)])
    found = memory.summary(1)
    assert found is not None and math.isnan(found.loss)


def test_what_is_measured_comes_before_what_is_told() -> None:
    memory = NumberMemory()
    memory.take([told(9.0), dataclasses.replace(report(0, 5, Random(1)), loss=3.0), told(8.0)])
    found = memory.summary(1)
    assert found is not None and found.loss == 3.0
