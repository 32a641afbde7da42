"""Small clusters through the real core: what is kept, what is lost, and to what."""

from __future__ import annotations

import dataclasses
import math

import pytest

from controlplane.analysis import goodput, intervals
from controlplane.simulation import mixes, picture, running
from controlplane.simulation.costs import Setup, split
from controlplane.simulation.failures import FailureInputError, Failures, Outage, spans
from controlplane.simulation.world import World

HOUR = 3600.0


def outage(node: int, hour: float, hours: float) -> Outage:
    return Outage(node, hour * HOUR, (hour + hours) * HOUR, "GPU")


def world(setup: Setup, *outages: Outage) -> World:
    made = World(setup, Failures("test", outages))
    made.run()
    whole = setup.nodes * made.end_s
    assert sum(made.ledger.total.values()) == pytest.approx(whole)
    return made


SMALL = Setup(nodes=4, days=0.5, costs=split(21.0))


def test_without_failures_only_the_start_is_lost() -> None:
    quiet = world(SMALL)
    assert set(quiet.ledger.total) - {"stalls", "lost_steps"} == {"kept", "start"}
    assert quiet.ledger.total["start"] / SMALL.nodes == pytest.approx(SMALL.first_start_s + 15.0, abs=4.0)


def test_a_lost_node_costs_a_recovery_and_then_itself_alone() -> None:
    hit = world(SMALL, outage(1, 2, 3))
    lost = hit.ledger.total
    assert lost["down"] == pytest.approx(3 * HOUR)
    recovery = sum(lost[cause] for cause in ("detect", "stop", "store", "reform", "restore")) / 3
    assert recovery == pytest.approx(SMALL.costs.total_s, abs=0.5)
    assert lost["lost_steps"] / 4 < SMALL.checkpoint_every_s
    plans = [(each.verdict.cause, each.plan.strategy) for each in hit.incidents]
    assert [str(cause) for cause, _ in plans] == ["node_lost", "resized"]
    assert [str(strategy) for _, strategy in plans] == ["shrink", "grow"]


def test_a_node_of_two_ranks_comes_back_with_both() -> None:
    hit = world(dataclasses.replace(SMALL, nproc=2), outage(1, 2, 3))
    assert [str(each.plan.strategy) for each in hit.incidents] == ["shrink", "grow"]
    assert hit.ledger.total["joining"] < 2 * SMALL.costs.total_s


def test_donors_lose_less_than_a_step() -> None:
    hit = world(dataclasses.replace(SMALL, donors=True), outage(1, 2, 3))
    assert hit.ledger.total.get("lost_steps", 0.0) / 4 <= SMALL.step_s


def test_a_spare_takes_the_place_of_a_lost_node() -> None:
    setup = dataclasses.replace(SMALL, spares=1, nodes_min=3)
    hit = world(setup, outage(0, 2, 3))
    assert "waiting" not in hit.ledger.total
    assert hit.ledger.total["idle_spare"] == pytest.approx(HOUR * 9, rel=0.02)


def test_a_fixed_size_without_spares_waits() -> None:
    hit = world(dataclasses.replace(SMALL, nodes_min=4), outage(1, 2, 3))
    assert hit.ledger.total["waiting"] == pytest.approx(3 * 3 * HOUR, rel=0.01)


def test_replicas_of_two_nodes_leave_the_odd_one_idle() -> None:
    hit = world(dataclasses.replace(SMALL, nodes_per_replica=2), outage(1, 2, 3))
    assert hit.ledger.total["idle_layout"] == pytest.approx(3 * HOUR, rel=0.02)


def test_a_dead_process_is_replaced_on_its_node() -> None:
    hit = world(SMALL, outage(2, 1, 0))
    assert "down" not in hit.ledger.total
    assert [str(each.plan.strategy) for each in hit.incidents] == ["respawn"]


def test_the_exact_formula_agrees_within_two_percent() -> None:
    setup = Setup(nodes=2, days=8.0, costs=split(21.0), stall_s=0.5, checkpoint_every_s=60.0)
    failures = mixes.from_rates(mixes.FailureRates(600.0, process_ratio=1.0), 2, setup.days, seed=3)
    found = running.simulate(setup, failures, lambda: 0.0)
    assert found.formula is not None
    assert found.ettr == pytest.approx(found.formula.ettr, rel=0.02)


def test_the_same_seed_gives_the_same_run() -> None:
    failures = mixes.from_rates(mixes.FailureRates(3000.0, burst_ratio=0.3), 4, 0.5, seed=7)
    first, second = (world(SMALL, *failures.outages) for _ in range(2))
    assert first.ledger.total == second.ledger.total
    assert first.incidents == second.incidents


def test_the_sizes_that_a_trace_would_have_allowed() -> None:
    steps = spans((outage(0, 0, 6), outage(1, 0, 3)), 12 * HOUR)
    assert goodput.ceiling(steps, 4, 12 * HOUR) == pytest.approx(1 - 9 / 48)
    best = goodput.best_fixed(steps, 4, 12 * HOUR)
    assert (best.nodes, best.goodput) == (2, 0.5) or best.goodput >= 9 / 12 * 3 / 4


def test_intervals_that_cost_least() -> None:
    young, best = intervals.young(1.0, 3600.0), intervals.optimum(1.0, 3600.0, 21.0)
    assert young == pytest.approx(math.sqrt(7200.0))
    assert best == pytest.approx(intervals.daly(1.0, 3600.0), rel=0.01)
    assert intervals.ettr_exact(best, 1.0, 3600.0, 21.0) >= intervals.ettr_exact(young, 1.0, 3600.0, 21.0)


def test_a_sweep_names_what_it_may_vary() -> None:
    assert running.sweep("spares=0,2") == ("spares", [0.0, 2.0])
    with pytest.raises(FailureInputError, match="give NAME=VALUE,VALUE with NAME one of spares"):
        running.sweep("colour=1")
    with pytest.raises(FailureInputError, match=r"1\.5 is no whole number"):
        running.sweep("spares=1.5")


def test_spares_are_what_a_fixed_size_needs_and_an_elastic_job_does_not() -> None:
    failures = Failures("test", (outage(1, 2, 3),))
    fixed = dataclasses.replace(SMALL, fixed=True)
    found = {
        (setup.fixed, setup.spares): running.simulate(setup, failures, lambda: 0.0).goodput
        for base in (fixed, SMALL)
        for setup in running.variants(base, "spares", [0.0, 1.0])
    }
    assert found[True, 1] > found[True, 0], "without a spare it waits for three hours"
    assert found[False, 0] > max(found[True, 0], found[True, 1])
    assert running.variants(SMALL, *running.sweep("fixed=1,0")) == [fixed, SMALL]
    with pytest.raises(FailureInputError, match=r"give 0 \(elastic\) or 1"):
        running.sweep("fixed=2")


def test_the_picture_is_whole_and_says_what_was_lost() -> None:
    found = running.simulate(SMALL, Failures("test", (outage(1, 2, 3),)), lambda: 0.0)
    drawn = picture.svg(found)
    assert drawn.startswith("<svg") and drawn.endswith("</svg>\n")
    assert "prefers-color-scheme: dark" in drawn
    assert "nodes that were down" in drawn


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spares": 4}, "leaves no replica"),
        ({"nodes_per_replica": 2, "nodes_min": 3}, "no multiple of 2"),
        ({"checkpoint_every_s": 0.5}, "shorter than one step"),
        ({"nodes_min": 5}, "more than the 4 nodes"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FailureInputError, match=words):
        World(dataclasses.replace(SMALL, **changes), Failures("test", ()))  # type: ignore[arg-type]
