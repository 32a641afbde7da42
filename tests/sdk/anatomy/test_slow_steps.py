"""A step that takes much longer than usual is on the page with its own phases, and no other step is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.anatomy.phases import COMMUNICATION, DATA, FORWARD
from holdfast.anatomy.recorder import StepRecorder
from holdfast.ipc.pages.slow_steps import KEPT, NAMES, SLOW_AT, SlowStep, SlowStepsPage
from holdfast.ipc.progress_page import PROGRESS_PAGE_BYTES, ProgressPage
from holdfast.ipc.rank_facts import RankFacts, RankFactsPage
from holdfast.ipc.step_times import StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
WARM = 30


class Loop:
    """A recorder with a page of its own; a step waits 10 ms for data, 5 ms for others, and works 15 ms."""

    def __init__(self, page: ProgressPage) -> None:
        self.now, self.number = 0, 0
        self.page, self.sums = SlowStepsPage(page), StepTimesPage(page)
        self.recorder = StepRecorder(self.sums, lambda: self.now, lambda: self.now, slow=self.page)
        self.recorder.begin()

    def wait(self, phase: int, ms: float) -> None:
        with self.recorder.within(phase):
            self.now += int(ms * MS)

    def step(self, data_ms: float = 10, others_ms: float = 5, work_ms: float = 15) -> None:
        self.wait(DATA, data_ms)
        if self.recorder.measuring:
            self.recorder.switch(FORWARD)
        self.now += int(work_ms * MS)
        self.wait(COMMUNICATION, others_ms)
        self.recorder.calls = self.recorder.passes = 1
        self.recorder.complete(self.number, 3, 1)
        self.number += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


@pytest.fixture
def board(tmp_path: Path) -> ProgressPage:
    return ProgressPage.create(tmp_path / "board")


@pytest.fixture
def loop(board: ProgressPage) -> Loop:
    found = Loop(board)
    found.steps(WARM)
    return found


def test_the_row_has_room_on_the_page() -> None:
    assert SLOW_AT + (1 + KEPT * len(NAMES) + 2) * 8 <= PROGRESS_PAGE_BYTES


def test_even_steps_are_none(loop: Loop) -> None:
    loop.steps(300)
    assert loop.page.read() == (0, [])


@pytest.mark.parametrize("measured", [True, False])
def test_a_slow_step_has_its_own_phases(loop: Loop, measured: bool) -> None:
    while loop.recorder.measuring is not measured:
        loop.step()
    number, before = loop.number, loop.sums.read()
    loop.step(data_ms=100)
    count, (found,) = loop.page.read()
    assert (count, found.step, found.generation) == (1, number, 3)
    assert found.usual_ns == pytest.approx(30 * MS, rel=0.01)
    assert (found.wall_ns, found.data_ns) == (120 * MS, 100 * MS)
    assert found.communication_ns == 5 * MS and found.forward_ns == pytest.approx(15 * MS, rel=0.02)
    phases = [getattr(found, name) for name in NAMES[4:]]
    assert sum(phases) == found.wall_ns
    after = loop.sums.read()
    assert before is not None and after is not None
    loop.steps(50)
    assert loop.page.read() == (1, [found])


def test_the_newest_slow_steps_are_kept_and_all_are_counted(loop: Loop) -> None:
    numbers = []
    for extra in range(KEPT + 2):
        loop.steps(20)
        numbers.append(loop.number)
        loop.step(work_ms=200 + extra)
    count, found = loop.page.read()
    assert count == KEPT + 2 and [each.step for each in found] == numbers[-KEPT:]


def test_another_pace_is_usual_after_a_while(loop: Loop) -> None:
    for _ in range(200):
        loop.step(work_ms=100)
    count, _ = loop.page.read()
    assert 0 < count < 50
    for _ in range(200):
        loop.step(work_ms=100)
    assert loop.page.read()[0] == count


def test_the_first_steps_of_a_loop_are_not_slow(loop: Loop) -> None:
    loop.recorder.stop()
    loop.recorder.begin()
    loop.step(work_ms=5000)
    assert loop.page.read() == (0, [])
    loop.steps(3)
    loop.step(work_ms=500)
    assert loop.page.read()[0] == 1


def test_a_session_after_another_one_goes_on_counting(loop: Loop, board: ProgressPage) -> None:
    loop.step(work_ms=500)
    again = Loop(board)
    again.steps(WARM)
    again.step(work_ms=500)
    count, found = again.page.read()
    assert count == 2 and len(found) == 2


def test_the_row_touches_nothing_else_of_the_page(board: ProgressPage) -> None:
    facts = RankFactsPage(board)
    facts.write(RankFacts(token_flops=5, at_ns=7))
    SlowStepsPage(board).write(9, [SlowStep(*range(1, len(NAMES) + 1))] * KEPT)
    assert facts.read() == RankFacts(token_flops=5, at_ns=7)
    assert SlowStepsPage(board).read() == (9, [SlowStep(*range(1, len(NAMES) + 1))] * KEPT)
