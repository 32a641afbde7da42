"""Ranks that wait for a CPU are not slow: their node is crowded, or a quota is too low. Stopped ones are."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.live import policy
from controlplane.analysis.live.table import columns_of
from tests.analysis.live.jobs import STEPS, job, kinds, opened, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import JobWindow, RankWindow

WINDOW_S = 10.0
CPU_S = 0.9
"""CPU time in each step of every rank, in s."""


def played(
    queued_s: Callable[[int], float],
    stopped_s: Callable[[int], float] = lambda rank: 0.0,
    cpu_s: Callable[[int], float] = lambda rank: CPU_S,
    *,
    throttled: float = 0.0,
    limit: float = 0.0,
    counted: Callable[[int], bool] = lambda rank: True,
    ranks: int = 8,
    since: int = 0,
    count: int = 30,
) -> list[JobWindow]:
    """A job whose ranks compute on CPUs. Per step, in s: how long each waits for a CPU (from window `since`
    on), is stopped, and computes. `throttled`: which share of the wait a quota of `limit` CPUs makes."""
    random = Random(3)

    def own(rank: int, window: int) -> float:
        waits_s = queued_s(rank) * random.uniform(0.9, 1.1) if window >= since else 0.0
        return cpu_s(rank) + waits_s + stopped_s(rank)

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        own_s = row.forward_s + row.backward_s + row.optimizer_s
        waited_s = max(0.0, own_s - (cpu_s(rank) + stopped_s(rank)) * STEPS)
        row = row._replace(cpu_s=cpu_s(rank) * STEPS)
        if not counted(rank):
            return row
        rate = WINDOW_S / row.wall_s
        return row._replace(
            watched_s=WINDOW_S,
            ran_s=cpu_s(rank) * STEPS * rate,
            queued_s=waited_s * rate,
            throttled_s=throttled * waited_s * rate,
            cpu_limit=limit,
        )

    return job(ranks, count, own=own, change=change)


def found(windows: list[JobWindow]) -> list[tuple[str, str]]:
    return kinds(opened(watched(windows)))


def test_a_healthy_rank_that_the_scheduler_disadvantages_is_not_slow() -> None:
    """As seen at load 20: the kernel had the one rank wait for longer than its peers."""
    windows = played(lambda rank: 2.2 if rank == 5 else 1.5)
    assert found(windows) == [("crowded_cpu", "")]
    blind = played(lambda rank: 2.2 if rank == 5 else 1.5, counted=lambda rank: False)
    assert ("slow_rank", "rank 5 (n1, device 1)") in found(blind)  # what the counts are for


def test_a_crowded_node_is_named_and_none_of_its_ranks() -> None:
    (finding,) = opened(watched(played(lambda rank: 0.4 if rank // 4 == 1 else 0.01, ranks=16)))
    assert (finding.kind, finding.subject) == ("crowded_cpu", "node n1")
    place, evidence = dict(finding.place), dict(finding.evidence)
    assert (place["node"], place["rank"]) == ("n1", None)
    assert 0.2 < float(evidence["wait_share_ratio"]) < 0.4
    assert "no rank is slow itself" in finding.reason


def test_a_job_that_is_slower_since_others_take_its_cpus_is_not_called_slowed() -> None:
    windows = played(lambda rank: 0.5, since=16)
    assert found(windows) == [("crowded_cpu", "")]
    blind = played(lambda rank: 0.5, counted=lambda rank: False, since=16)
    assert found(blind) == [("job_slowed", "")]


def test_nor_is_it_when_others_have_taken_them_for_so_long_that_nothing_else_is_remembered() -> None:
    """As seen in a healthy job on a machine that was crowded for longer than whole-job times are kept."""
    windows = played(lambda rank: 0.5, since=16, count=policy.JOB_ROWS + 40, ranks=2)
    assert found(windows) == [("crowded_cpu", "node n0")]


def test_cpus_that_others_want_do_not_count_as_idle_devices() -> None:
    """As seen at load 25 in a healthy job."""

    def idle(waits_s: float) -> list[tuple[str, str]]:
        windows = [
            window.__class__(
                window.job, 1, window.began_s, window.ended_s,
                columns_of([row._replace(device_used=0.6) for row in rows_of(window)]), 8,
            )
            for window in played(lambda rank: waits_s)
        ]  # fmt: skip
        return found(windows)

    assert idle(1.5) == [("crowded_cpu", "")]
    assert idle(0.01) == [("device_underused", "")]


def test_a_quota_is_named_with_its_limit() -> None:
    windows = played(lambda rank: 0.3 if rank // 4 == 1 else 0.0, throttled=1.0, limit=2.0, ranks=16)
    (finding,) = opened(watched(windows))
    assert (finding.kind, finding.subject) == ("cpu_throttled", "node n1")
    assert "limit of its cgroup (2 CPUs)" in finding.reason
    assert dict(finding.evidence)["cpu_limit_count"] == 2.0


def test_a_quota_of_one_rank_names_that_rank() -> None:
    windows = played(lambda rank: 0.3 if rank == 6 else 0.0, throttled=1.0, limit=1.0)
    assert found(windows) == [("cpu_throttled", "rank 6 (n1, device 2)")]


def test_a_stopped_rank_is_slow_on_an_idle_and_on_a_crowded_machine() -> None:
    (finding,) = opened(watched(played(lambda rank: 0.0, lambda rank: 0.5 if rank == 2 else 0.0)))
    assert (finding.kind, finding.subject) == ("slow_rank", "rank 2 (n0, device 2)")
    assert "neither ran nor waited for a CPU" in finding.reason
    crowded = played(lambda rank: 0.4, lambda rank: 0.6 if rank == 2 else 0.0)
    assert set(found(crowded)) == {("crowded_cpu", ""), ("slow_rank", "rank 2 (n0, device 2)")}


def test_less_than_a_tenth_of_the_waits_for_a_cpu_accuses_nobody() -> None:
    """As seen at load 16 in a healthy job: what was left of a rank's time, when waits of three quarters of a
    step had been taken off, was 1.24 times that of its peers. Waits are estimated, and not that well."""
    windows = played(lambda rank: 1.5, lambda rank: 0.1 if rank == 2 else 0.0, cpu_s=lambda rank: 0.4)
    assert found(windows) == [("crowded_cpu", "")]
    more = played(lambda rank: 1.5, lambda rank: 0.4 if rank == 2 else 0.0, cpu_s=lambda rank: 0.4)
    assert ("slow_rank", "rank 2 (n0, device 2)") in found(more)


def test_work_that_is_uneven_by_less_than_ranks_wait_for_a_cpu_is_not_called_so() -> None:
    """As seen in a healthy job whose ranks waited for a CPU for 40 % of a step."""

    def half_stopped(waits_s: float) -> list[tuple[str, str]]:
        windows = played(lambda rank: waits_s, lambda rank: 0.3 * (rank < 2), cpu_s=lambda rank: 0.4, ranks=4)
        return found(windows)

    assert half_stopped(0.6) == [("crowded_cpu", "node n0")]
    assert ("uneven_work", "") in half_stopped(0.1)


def test_more_work_on_a_crowded_machine_is_more_work() -> None:
    windows = played(lambda rank: 0.4, cpu_s=lambda rank: 1.5 if rank == 3 else CPU_S)
    assert ("heavy_work", "work of rank 3 (n0, device 3)") in found(windows)
    assert not [kind for kind, _ in found(windows) if kind.startswith("slow")]


def test_ranks_of_an_older_agent_are_compared_with_waits_included() -> None:
    """Node n1 reports no counts: its ranks seem to work for longer than the others' fair times."""
    windows = played(lambda rank: 0.3, counted=lambda rank: rank // 4 != 1, ranks=16)
    assert not [kind for kind, _ in found(windows) if kind != "crowded_cpu"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ran_s": 100.0},
        {"queued_s": 100.0},
        {"ran_s": 0.01, "queued_s": 9.0},  # another process: the rank itself has measured more CPU time
        {"watched_s": 0.0, "queued_s": 9.0},
    ],
)
def test_counts_that_cannot_be_are_taken_as_unknown(wrong: dict[str, Any]) -> None:
    windows = played(lambda rank: 0.0)
    spoilt = [
        window.__class__(
            window.job, 1, window.began_s, window.ended_s,
            columns_of([row._replace(**wrong) if row.rank == 1 else row for row in rows_of(window)]), 8,
        )
        for window in windows
    ]  # fmt: skip
    assert found(spoilt) == []


def test_where_devices_compute_waits_for_a_cpu_say_nothing() -> None:
    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(watched_s=10.0, ran_s=2.0, queued_s=2.0, cpu_limit=0.0)

    slow = job(8, own=lambda rank, window: 1.5 if rank == 5 else 1.0, change=change)
    assert found(slow) == [("slow_rank", "rank 5 (n1, device 1)")]


def told(windows: list[JobWindow]) -> list[tuple[ChangeKind, str]]:
    """What becomes of which subject."""
    ledger = FindingLedger()
    return [
        (change.kind, change.entry.finding.subject)
        for each in watched(windows)
        if each.judged
        for change in ledger.observe(each.ended_s, each.job, each.findings)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_ranks_near_the_limit_with_counts_in_some_windows_are_told_of_once(seed: int) -> None:
    """As seen with windows of 1 s: one node was crowded, then the job, then nobody, twice a minute."""
    random = Random(seed)
    windows = played(
        lambda rank: random.uniform(0.02, 0.24), counted=lambda rank: random.random() < 0.55, count=150
    )
    subjects = told(windows)
    assert len([kind for kind, _ in subjects if kind is ChangeKind.OPENED]) <= 2, subjects
    assert (ChangeKind.RESOLVED, "") not in subjects, "both nodes were hit, so it stays with the job"
    assert (ChangeKind.OPENED, "") in subjects


def test_what_was_found_of_most_nodes_is_over_when_no_node_is_crowded() -> None:
    windows = [*played(lambda rank: 0.4, count=40), *played(lambda rank: 0.0, count=100)[40:]]
    assert told(windows) == [(ChangeKind.OPENED, ""), (ChangeKind.RESOLVED, "")]


def test_work_between_the_phases_is_no_wait_for_a_cpu() -> None:
    """A third of each step lies between the phases. The waits of most ranks, which also wait for a CPU in
    communication, were taken off that work whole, and those of one rank were not."""

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        queued_s = 0.9 if rank == 0 else 1.15
        return row._replace(
            wall_s=1.44 * STEPS,
            data_s=0.0,
            forward_s=0.48 * STEPS,
            backward_s=0.2 * STEPS,
            optimizer_s=0.05 * STEPS,
            other_s=0.47 * STEPS,
            communication_s=0.24 * STEPS,
            cpu_s=0.08 * STEPS,
            watched_s=WINDOW_S,
            ran_s=0.29 / 1.44 * WINDOW_S,
            queued_s=queued_s / 1.44 * WINDOW_S,
            cpu_limit=0.0,
        )

    assert found(job(4, 40, change=change)) == [("crowded_cpu", "node n0")]
