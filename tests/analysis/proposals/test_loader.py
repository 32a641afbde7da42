"""Workers for a loader, by who makes the samples, and smaller numbers of them where CPUs are few."""

from __future__ import annotations

import math
from typing import Any

import pytest

from controlplane.analysis.live.resources.loading import SampleWaits, sample_waits
from controlplane.analysis.live.table import tabulate
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld
from controlplane.analysis.proposals.proposing import propose
from controlplane.core.state.findings import Finding, Level, Recommendation
from controlplane.daemon.telemetry.job_time import Spent
from tests.analysis.live.jobs import job, watched
from tests.analysis.proposals.played import reported

SPENT = Spent(600.0, {"data": 400.0})
EVERYBODY = Finding(
    "slow_data", Level.DEGRADED, "", "a typical rank waits for samples for 40% of a step",
    recommendations=(Recommendation("Give the loader more workers.", 0.36),),
)  # fmt: skip
NAMED = Finding(
    "slow_data", Level.DEGRADED, "rank 3 (n0, device 3)", "it waits for samples",
    place=(("node", "n0"), ("rank", 3)), confidence=0.9,
    recommendations=(Recommendation("Look at the disk.", 0.36),),
)  # fmt: skip


def waiting(
    ran_ratio: float, *findings: Finding, cpu_limit: float = 0.0, data_s: float = 0.8
) -> dict[str, Any]:
    """A job of four ranks on one node, in which each waits 0.8 s for samples in a step of 2 s, and its main
    thread runs for this share of that wait."""

    def change(rank: int, window: int, row: Any) -> Any:
        wall_s = row.wall_s + (data_s - 0.02) * row.steps
        ran_s = row.cpu_s + ran_ratio * data_s * row.steps
        return row._replace(
            data_s=data_s * row.steps, wall_s=wall_s, watched_s=wall_s, ran_s=ran_s, cpu_limit=cpu_limit
        )

    newest = watched(job(4, change=change, noise=0.0))[-1]
    return reported(SPENT, *findings, newest=newest)


def told(report: dict[str, Any]) -> Proposal | Withheld:
    found = propose(report, 0)
    every: list[Proposal | Withheld] = [*found.proposals, *found.withheld]
    return next(each for each in every if each.setting == "loader")


def test_a_rank_that_makes_its_samples_itself_gets_workers_that_hide_the_wait() -> None:
    found = told(waiting(1.0))
    assert isinstance(found, Proposal) and found.at_most
    assert found.confidence == pytest.approx(0.9), "0.72 of 0.8 s: it may have run in 0.08 s of communication"
    assert found.changes == (SettingChange("num_workers", "0", "1"),)
    assert found.gain_ratio == pytest.approx(0.4), "one batch in 0.8 s, and the rest of a step takes 1.1 s"
    assert "it makes samples itself" in found.reason and "how many CPUs the node has" in found.reason


def test_a_batch_that_takes_longer_than_the_rest_of_a_step_needs_several_workers() -> None:
    found = told(waiting(1.0, data_s=4.0))
    assert isinstance(found, Proposal) and found.changes == (SettingChange("num_workers", "0", "4"),)
    assert found.gain_ratio == pytest.approx(0.4)


def test_few_cpus_allow_fewer_workers_which_gain_less() -> None:
    found = told(waiting(1.0, data_s=4.0, cpu_limit=12.0))
    assert isinstance(found, Proposal) and found.changes == (SettingChange("num_workers", "0", "2"),)
    rest_s = 1.08
    assert found.gain_ratio == pytest.approx(0.4 * (4.0 + rest_s - 2.0) / 4.0)
    assert "4 would hide all of it" in found.reason and "12 CPUs for 4 ranks" in found.reason


def test_without_a_free_cpu_workers_are_not_proposed_whatever_a_finding_says() -> None:
    found = propose(waiting(1.0, EVERYBODY, cpu_limit=4.0), 0)
    assert not [each for each in found.proposals if each.setting == "loader"]
    why = next(each.reason for each in found.withheld if each.setting == "loader")
    assert "may use 4 CPUs for 4 ranks: a worker would take the CPU of a rank" in why


def test_where_cpus_are_short_already_workers_are_not_proposed() -> None:
    report = waiting(1.0, EVERYBODY)
    report["samples"]["no_cpu_ratio"] = 0.6
    found = told(report)
    assert (
        isinstance(found, Withheld)
        and "for 60% of the time in which it could run it had no CPU" in found.reason
    )


@pytest.mark.parametrize(
    ("ran_ratio", "words"),
    [(0.0, "its main thread sleeps then"), (math.nan, "not known who made the samples")],
)
def test_who_has_workers_already_or_is_not_known_gets_no_number(ran_ratio: float, words: str) -> None:
    report = waiting(0.0 if math.isnan(ran_ratio) else ran_ratio)
    if math.isnan(ran_ratio):
        report["samples"] = None
    found = told(report)
    assert isinstance(found, Proposal) and found.changes == () and words in found.reason
    assert found.gain_ratio == pytest.approx(0.4), "that much at most"


def test_a_finding_that_names_who_waits_says_more_than_the_account_and_one_about_all_says_less() -> None:
    assert [each.action for each in propose(waiting(1.0, NAMED), 0).proposals] == ["Look at the disk."]
    (own,) = propose(waiting(1.0, EVERYBODY), 0).proposals
    assert own.changes == (SettingChange("num_workers", "0", "1"),)
    short = waiting(1.0, EVERYBODY) | {"time": reported(Spent(150.0, {"data": 100.0}))["time"]}
    assert [each.action for each in propose(short, 0).proposals] == ["Give the loader more workers."]


def test_what_the_main_thread_may_have_done_beside_is_not_taken_for_samples() -> None:
    numbers: dict[str, float] = {"data_s": 2.0, "other_s": 3.0, "ran_s": 4.0}
    found = _waits(**numbers)
    assert found.made_least_s == 0.0 and found.made_most_s == pytest.approx(0.4)
    crowded = _waits(**numbers | {"ran_s": 1.0, "queued_s": 8.0, "other_s": 0.5, "data_s": 8.0})
    assert crowded.made_least_s == pytest.approx((9.0 - 5.0 - 0.5) / 5), (
        "all its own work may have been ready"
    )
    assert crowded.no_cpu_ratio == pytest.approx(8 / 9)


def _waits(**numbers: float) -> SampleWaits:
    """The waits of two ranks alike in a window of 10 s, in which each has 5 s of own work."""
    whole: dict[str, Any] = {
        "communication_s": 0.0,
        "wall_s": 10.0,
        "cpu_s": 1.0,
        "watched_s": 10.0,
    } | numbers
    (window, *_) = job(2, 1, change=lambda rank, window, row: row._replace(**whole), noise=0.0)
    found = sample_waits(tabulate(window, None))
    assert found is not None
    return found
