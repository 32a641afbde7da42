"""A slow rank accuses nobody beside it, on crowded machines too, and windows that miss ranks hide nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from tests.analysis.live.jobs import STEPS, job, kinds, opened, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import JobWindow, RankWindow

CPU_S, WAIT_S, SINCE = 0.06, 0.3, 15
SLOW = ("slow_rank", "rank 3 (n1, device 1)")


def shared(
    stopped_s: Callable[[int], float],
    counted: Callable[[int, int], float] = lambda rank, window: 1.0,
    covered: Callable[[int, int], bool] = lambda node, window: True,
    *,
    wait_s: float = WAIT_S,
    cpu_s: float = CPU_S,
    ranks: int = 4,
    count: int = 45,
    seed: int = 1,
) -> list[JobWindow]:
    """Nodes of two ranks each, on machines that others use too. Per step, in s: for how long a rank is
    stopped from window 15 on, waits for a CPU, and computes. `counted`: which share of a wait is known;
    `covered`: whether the hooks of a node's ranks tell its own work in a window."""
    random = Random(seed)
    waits_s = [[wait_s * random.uniform(0.85, 1.15) for _ in range(ranks)] for _ in range(count)]

    def own(rank: int, window: int) -> float:
        return cpu_s + waits_s[window][rank] + (stopped_s(rank) if window >= SINCE else 0.0)

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        rate = 10.0 * STEPS / row.wall_s
        return row._replace(
            node=f"n{rank // 2}",
            device=rank % 2,
            covered=STEPS if covered(rank // 2, window) else 0,
            cpu_s=cpu_s * STEPS,
            watched_s=10.0,
            ran_s=cpu_s * rate,
            queued_s=counted(rank, window) * waits_s[window][rank] * rate,
            cpu_limit=0.0,
        )

    return job(ranks, count, own=own, change=change, seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stopped_s", [0.09, 0.12])
@pytest.mark.parametrize("ranks", [4, 6])
def test_a_slow_rank_does_not_accuse_the_node_that_it_shares(ranks: int, stopped_s: float, seed: int) -> None:
    """Of rank 2, beside it, nine tenths of its wait are known: what is left of its work is 1.5 times that of
    its peers, which alone would name nobody. Of four ranks these two are half, and so the past decides."""
    windows = shared(
        lambda rank: stopped_s if rank == 3 else 0.0,
        lambda rank, window: 0.91 if rank == 2 and window >= SINCE else 1.0,
        ranks=ranks,
        seed=seed,
    )
    found = {each for each in kinds(opened(watched(windows))) if each[0] != "crowded_cpu"}
    assert found <= {SLOW, ("uneven_work", "")} and SLOW in found


@pytest.mark.parametrize("factor", [1.4, 3.0])
def test_a_rank_that_is_much_slower_than_a_slight_neighbour_is_no_slow_node(factor: float) -> None:
    def own(rank: int, window: int) -> float:
        late = window >= SINCE
        return factor if late and rank == 3 else 1.055 if late and rank == 2 else 1.0

    def seated(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(node=f"n{rank // 2}", device=rank % 2)

    found = kinds(opened(watched(job(8, own=own, change=seated, noise=0.005))))
    assert SLOW in found and ("slow_node", "node n1") not in found


@pytest.mark.parametrize("ratios", [(1.12, 1.12), (1.5, 1.4), (2.0, 1.3)])
def test_a_node_both_of_whose_ranks_are_slow_is_named_at_the_level_of_the_lesser(
    ratios: tuple[float, float],
) -> None:
    def own(rank: int, window: int) -> float:
        return ratios[rank - 2] if window >= SINCE and rank in (2, 3) else 1.0

    def seated(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(node=f"n{rank // 2}", device=rank % 2)

    (finding,) = opened(watched(job(8, own=own, change=seated, noise=0.005)))
    assert (finding.kind, finding.subject) == ("slow_node", "node n1")
    assert float(dict(finding.evidence)["own_ratio"]) == pytest.approx(min(ratios), abs=0.02)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_stopped_rank_without_peers_is_not_called_throttled(ranks: int) -> None:
    """The kernel's counts say that it was not ready to run, so no quota is to blame; and the advice is about
    what stops a process."""
    windows = shared(lambda rank: 0.4 if rank == 0 else 0.0, wait_s=0.01, cpu_s=0.3, ranks=ranks)
    (finding,) = opened(watched(windows))
    assert finding.kind == ("slow_rank" if ranks == 2 else "job_slowed")
    if ranks == 2:
        assert "neither ran nor waited for a CPU" in finding.reason and "SIGSTOP" in finding.recommendation


def told(windows: list[JobWindow]) -> list[tuple[ChangeKind, str, str]]:
    """What is announced, as the leader does it: what it could not look at is not over."""
    watch, ledger, found = JobWatch(), FindingLedger(), []
    for window in windows:
        seen = watch.observe(window)
        if not seen.judged:
            continue
        blind = [name for name in ("n0", "n1") if name not in seen.nodes_seen]
        unjudged = seen.out.nonzero()[0].tolist()
        changes = ledger.observe(
            window.ended_s, "j", seen.findings, unjudged, blind, silent_stages=seen.silent_stages
        )
        found += [(each.kind, each.entry.finding.kind, each.entry.finding.subject) for each in changes]
    return [each for each in found if each[1] != "crowded_cpu"]


@pytest.mark.parametrize("seed", range(8))
def test_windows_that_miss_the_slow_rank_neither_end_the_finding_nor_slow_the_whole_job(seed: int) -> None:
    """Where windows are as short as steps, hooks tell of only some ranks in each: as seen in the demo, where
    the job was called slow on all ranks alike beside the rank that was, and this rank well now and then."""
    random = Random(seed)
    covers = [random.choice([(True, True), (True, False), (False, True)]) for _ in range(60)]
    windows = shared(
        lambda rank: 0.25 if rank == 3 else 0.0,
        covered=lambda node, window: covers[window][node],
        wait_s=0.05,
        cpu_s=0.15,
        count=60,
        seed=seed,
    )
    assert told(windows) == [(ChangeKind.OPENED, *SLOW)]


@pytest.mark.parametrize("seed", range(3))
def test_windows_that_miss_a_stage_do_not_end_what_was_found_of_it(seed: int) -> None:
    """As seen in the demo of an overfull last stage: one window of twelve without it was enough."""
    random = Random(seed)
    missing = {window: random.choice([0, 1]) for window in range(8, 60, 7)}

    def own(rank: int, window: int) -> float:
        return 2.0 if rank % 2 else 1.0

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        hidden = missing.get(window) == rank % 2
        return row._replace(
            stage=rank % 2, dp_rank=rank // 2, node=f"n{rank // 2}", covered=0 if hidden else STEPS
        )

    windows = job(4, 60, own=own, change=change)
    assert told(windows) == [(ChangeKind.OPENED, "overfull_last_stage", "stage 1")]


@pytest.mark.parametrize("silent", [[1], [0, 1]])
def test_hooks_that_tell_nothing_for_minutes_do_not_end_what_was_found_of_a_stage(silent: list[int]) -> None:
    """As in an evaluation: nothing is known of the stage, so nothing is over there."""

    def own(rank: int, window: int) -> float:
        return 2.0 if rank % 2 and window < 60 else 1.0

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        hidden = 30 <= window < 45 and rank % 2 in silent
        return row._replace(
            stage=rank % 2, dp_rank=rank // 2, node=f"n{rank // 2}", covered=0 if hidden else STEPS
        )

    found = told(job(4, 100, own=own, change=change))
    assert found == [
        (ChangeKind.OPENED, "overfull_last_stage", "stage 1"),
        (ChangeKind.RESOLVED, "overfull_last_stage", "stage 1"),
    ]


def test_a_new_generation_does_not_end_what_was_found_of_a_stage() -> None:
    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(stage=rank % 2, dp_rank=rank // 2, node=f"n{rank // 2}")

    windows = job(4, 60, own=lambda rank, window: 2.0 if rank % 2 else 1.0, change=change)

    def anew(window: JobWindow) -> JobWindow:
        rows = [each._replace(generation=2) for each in rows_of(window)]
        return replace(window, generation=2, ranks=columns_of(rows))

    again = [*windows[:30], *map(anew, windows[30:])]
    assert told(again) == [(ChangeKind.OPENED, "overfull_last_stage", "stage 1")]


@pytest.mark.parametrize("seed", range(3))
def test_a_window_of_the_slow_rank_alone_does_not_say_that_it_is_well(seed: int) -> None:
    random = Random(seed)
    alone = {SINCE + 12 + 3 * block + random.choice([0, 1]) for block in range(8)}

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(covered=0 if window in alone and rank != 3 else STEPS)

    def own(rank: int, window: int) -> float:
        return 1.8 if rank == 3 and window >= SINCE else 1.0

    assert told(job(4, 60, own=own, change=change, seed=seed)) == [
        (ChangeKind.OPENED, "slow_rank", "rank 3 (n0, device 3)")
    ]
