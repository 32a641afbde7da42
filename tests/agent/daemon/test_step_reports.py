"""The agent reports the difference of two looks at a rank's page, and what cannot be true costs only its
rank."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.step_reports import StepReports
from agent.deciding.member import LocalMember
from controlplane.core.records.model import MemberPhase, MemberStatus
from controlplane.wire import codec
from holdfast.ipc.pages import training_end
from holdfast.ipc.pages.slow_steps import SlowStep, SlowStepsPage
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.rank_facts import COUNTED, RankFacts, RankFactsPage
from holdfast.ipc.step_times import StepSums, StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.core.records.diagnosis import StepTimes

S = 1_000_000_000

KERNEL_TICK_S = 0.01
"""The kernel may bring the count of a thread that runs up to date only at a tick (100 to 1,000 a second), so
each of the two looks may find it that late."""


class Node:
    """Two ranks of one job, with real pages."""

    def __init__(self, folder: Path) -> None:
        self.pages = [ProgressPage.create(folder / f"page-{rank}") for rank in range(2)]
        self.members = [self._member(rank) for rank in range(2)]
        self.dropped: list[tuple[str, str]] = []
        self.reports = StepReports(
            "n0", 7, self.members, every_s=lambda: 1.0, send=lambda _: None, drop=self._drop
        )

    def _member(self, rank: int) -> LocalMember:
        pid = os.getpid() if rank == 0 else 0  # the other one's process is not known
        status = MemberStatus(f"j.{rank}", "j", MemberPhase.RUNNING, rank=rank, pid=pid)
        return LocalMember(status, page=self.pages[rank])

    def _drop(self, kind: str, reason: str) -> None:
        self.dropped.append((kind, reason))

    def write(self, rank: int, **sums: int) -> None:
        StepTimesPage(self.pages[rank]).write(StepSums(**sums))

    def report(self) -> StepTimes:
        (report,) = self.reports.reports(5.0)
        return report


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_page_without_steps_gives_no_sums(node: Node) -> None:
    assert StepTimesPage(node.pages[0]).read() is None
    assert node.reports.reports(1.0) == []


def test_what_was_added_between_two_looks_is_reported(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10, last_step=9, wall_ns=10 * S, forward_ns=4 * S, longest_ns=2 * S)
    assert node.reports.reports(5.0) == []  # how long these ten took to come is not known
    node.write(0, steps=14, last_step=13, wall_ns=15 * S, forward_ns=6 * S, longest_ns=3 * S, flops=5)
    node.write(1, steps=13, last_step=12, wall_ns=14 * S, forward_ns=4 * S, longest_ns=2 * S, memory_bytes=9)
    report = node.report()
    assert (report.node, report.incarnation, report.job, report.span_s) == ("n0", 7, "j", 5.0)
    assert (report.ranks, report.steps, report.last_steps) == ((0, 1), (4, 3), (13, 12))
    assert (report.wall_s, report.forward_s, report.longest_s) == ((5.0, 4.0), (2.0, 0.0), (3.0, 2.0))
    assert (report.flops, report.memory_bytes) == ((5e6, 0.0), (0, 9))
    assert node.report().steps == (0, 0)


def test_the_kernels_counts_are_reported_and_unknown_ones_are_zero(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    node.reports.reports(5.0)
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    report = node.report()
    assert report.watched_s[0] + KERNEL_TICK_S >= report.ran_s[0] >= 0.1 > report.ran_s[1]
    assert (report.watched_s[1], report.queued_s[1], report.cpu_limits[1]) == (0.0, 0.0, -1.0)


def test_the_first_report_after_a_pause_covers_no_more_than_its_time(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    node.reports.reports(5.0)
    node.reports.pause()  # the leader wants none for a while
    for rank in range(2):
        node.write(rank, steps=1000)
    assert node.reports.reports(1.0) == []
    for rank in range(2):
        node.write(rank, steps=1004)
    assert node.report().steps == (4, 4)


@pytest.mark.parametrize(
    "wrong",
    [{"wall_ns": 1}, {"steps": 3}, {"data_ns": -5}, {"samples": 1 << 60}, {"steps": 12, "covered": 99}],
)
def test_impossible_sums_cost_only_their_own_rank(node: Node, wrong: dict[str, int]) -> None:
    begun = {"steps": 10, "last_step": 9, "wall_ns": 10 * S}
    for rank in range(2):
        node.write(rank, **begun)
    node.reports.reports(5.0)
    node.write(0, **(begun | wrong))
    assert node.report().ranks == (1,)
    assert node.dropped == [("step_times", "j.0: impossible sums on its progress page")]


def test_ranks_that_do_not_train_are_left_out(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    node.reports.reports(5.0)
    node.members[0].status = dataclasses.replace(node.members[0].status, phase=MemberPhase.READY)
    assert node.report().ranks == (1,)


def test_a_reader_that_meets_the_writer_looks_again_and_gives_up_in_the_end(node: Node) -> None:
    node.write(0, steps=10)
    page = StepTimesPage(node.pages[0])
    assert page.read() == StepSums(steps=10)
    broken: Any = page
    broken._memory = bytearray(node.pages[0].memory)
    broken._memory[2048] ^= 1  # the count before the sums is not the one after them
    assert page.read() is None


def test_facts_travel_beside_the_sums(node: Node) -> None:
    facts = RankFacts(600, 1000, COUNTED, 2 * S, 3 * S, 0, 7, 5, 10 * S, 100 * S)
    for rank in range(2):
        node.write(rank, steps=10)
    RankFactsPage(node.pages[0]).write(facts)
    node.reports.reports(5.0)
    node.report()
    later = dataclasses.replace(facts, compile_ns=3 * S, ran_ns=11 * S, at_ns=104 * S)
    RankFactsPage(node.pages[0]).write(later)
    report = node.report()
    assert (report.token_flops, report.peak_flops) == ((600.0, 0.0), (1000.0, 0.0))
    assert report.compute_notes[0] == "counted" and "older" in report.compute_notes[1]
    assert (report.compile_s, report.evaluate_s) == ((1.0, 0.0), (0.0, 0.0))
    assert (report.memory_limit_bytes, report.memory_reserved_bytes) == ((7, 0), (5, 0))
    assert report.device_used == (0.25, -1.0)


@pytest.mark.parametrize("wrong", [{"token_flops": -1}, {"memory_limit_bytes": 1 << 62}, {"ran_ns": -5}])
def test_facts_that_cannot_be_are_not_told(node: Node, wrong: dict[str, int]) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    RankFactsPage(node.pages[0]).write(dataclasses.replace(RankFacts(600, 1000, COUNTED), **wrong))
    node.reports.reports(5.0)
    assert node.report().token_flops == (0.0, 0.0)


def test_a_note_of_a_newer_sdk_is_no_error(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    RankFactsPage(node.pages[0]).write(RankFacts(note=10_000))
    node.reports.reports(5.0)
    assert "newer SDK" in node.report().compute_notes[0]


def test_the_gpus_own_use_counts_where_it_can_be_read(node: Node) -> None:
    node.reports._device_used = lambda member: 0.5 if member.status.rank else -1.0
    for rank in range(2):
        node.write(rank, steps=10)
        RankFactsPage(node.pages[rank]).write(RankFacts(600))
    node.reports.reports(5.0)
    assert node.report().device_used == (-1.0, 0.5)


def test_the_end_of_the_training_is_reported_as_each_rank_says_it(node: Node) -> None:
    for rank in range(2):
        node.write(rank, steps=10)
    node.reports.reports(5.0)
    training_end.write(node.pages[0], training_end.LOOP, 500)
    report = node.report()
    assert (report.end_kinds, report.end_steps) == (("loop", "older SDK"), (500, 0))


def test_slow_steps_are_reported_once_and_those_that_are_gone_are_counted(node: Node) -> None:
    page = SlowStepsPage(node.pages[0])
    page.write(1, [SlowStep(5, 1, S, 2 * S, S, S)])
    for rank in range(2):
        node.write(rank, steps=10)
    node.reports.reports(5.0)
    assert node.report().slow is None, "nobody knows when the steps before the first look were"
    page.write(2, [SlowStep(5, 1, S, 2 * S, S, S), SlowStep(9, 1, S, 4 * S, 3 * S, S)])
    report = node.report()
    assert report.slow is not None
    found = report.slow
    assert (found.ranks, found.at_steps, found.usual_s, found.wall_s) == ((0,), (9,), (1.0,), (4.0,))
    assert (found.data_s, found.forward_s, found.other_s, found.more) == ((3.0,), (1.0,), (0.0,), 0)
    assert codec.event_from("n0", 7, codec.to_coordinator(report)) == report
    assert node.report().slow is None
    rows = [SlowStep(step, 1, S, 2 * S, 2 * S) for step in range(20, 23)]
    page.write(9, [*rows, SlowStep(30, 1, S, -5, 2 * S)])
    later = node.report().slow
    assert later is not None
    found = later
    assert found.at_steps == (20, 21, 22) and found.more == 4, "three are gone, and one is impossible"
