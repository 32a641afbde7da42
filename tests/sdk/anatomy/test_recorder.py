"""The recorder, with given times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.anatomy import phases, policy
from holdfast.anatomy.memory import EVERY_NS, used
from holdfast.anatomy.phases import (
    BACKWARD,
    COMMUNICATION,
    DATA,
    DECLARED,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    REDUCTION,
    SNAPSHOT,
)  # fmt: skip
from holdfast.anatomy.recorder import StepRecorder
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.step_times import PHASES, SUMS_AT, StepSums, StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


class Steps:
    """A recorder whose clocks go on only when told; CPU time passes at half the speed."""

    def __init__(self, page: ProgressPage) -> None:
        self.now = 5
        self.page = StepTimesPage(page)
        self.recorder = StepRecorder(self.page, lambda: self.now, lambda: self.now // 2)
        self.recorder.begin()

    def spend(self, phase: int, ms: int) -> None:
        self.recorder.switch(phase)
        self.now += ms * MS

    def wait(self, phase: int, ms: int) -> None:
        with self.recorder.within(phase):
            self.now += ms * MS

    def step(self, number: int = 0, *, factor: int = 1, forward_ms: int = 2) -> None:
        """A step of 28 ms, in ms: data 1, forward 2, loss 1, backward 4, optimizer 3, and others."""
        for wait, phase, ms in (
            *((1, DATA, 1), (0, FORWARD, forward_ms), (0, LOSS, 1), (0, BACKWARD, 4), (0, REDUCTION, 5)),
            *((0, OPTIMIZER, 3), (1, COMMUNICATION, 2), (0, OTHER, 6), (1, SNAPSHOT, 4)),
        ):
            if wait:
                self.wait(phase, ms * factor)
            elif self.recorder.measuring:
                if phase == BACKWARD:
                    self.recorder.settle(backward=True)
                self.spend(phase, ms * factor)
            else:
                self.now += ms * factor * MS
        self.recorder.calls = self.recorder.passes = 1
        self.recorder.complete(number, 1, 8)

    @property
    def sums(self) -> StepSums:
        found = self.page.read()
        assert found is not None and found.wall_ns == sum(getattr(found, f"{name}_ns") for name in PHASES)
        return found

    @property
    def ms(self) -> list[int]:
        return [round(getattr(self.sums, f"{name}_ns") / MS) for name in PHASES]


@pytest.fixture
def board(tmp_path: Path) -> ProgressPage:
    return ProgressPage.create(tmp_path / "m.board")


def test_a_step_is_divided_and_a_wait_is_not_counted_twice(board: ProgressPage) -> None:
    steps = Steps(board)
    assert steps.page.read() is None
    steps.step(7)
    assert steps.ms == [1, 3, 4, 7, 3, 4, 6]
    sums = steps.sums
    assert (sums.steps, sums.last_step, sums.generation, sums.covered, sums.samples) == (1, 7, 1, 1, 8)
    assert (sums.wall_ns, sums.longest_ns, sums.cpu_ns) == (28 * MS, 28 * MS, 5 * MS)


def test_a_forward_pass_without_a_backward_pass_has_no_loss(board: ProgressPage) -> None:
    steps = Steps(board)
    steps.spend(FORWARD, 2)
    steps.spend(LOSS, 9)
    steps.recorder.calls = 1
    steps.recorder.complete(0, 1, 0)
    assert steps.ms == [0, 2, 0, 0, 0, 0, 9] and steps.sums.covered == 0


def test_a_step_that_is_not_completed_is_forgotten_with_all_that_follows(board: ProgressPage) -> None:
    steps = Steps(board)
    steps.step()
    before = steps.sums
    steps.spend(FORWARD, 900)
    steps.recorder.stop()
    steps.now += 5000 * MS
    steps.recorder.complete(1, 1, 8)
    assert steps.sums == before, "no loop runs"
    old = steps.recorder.begin()
    steps.step(1)
    assert steps.ms == [2, 6, 8, 14, 6, 8, 12] and steps.sums.longest_ns == 28 * MS
    new = steps.recorder.begin()
    steps.recorder.stop(old)
    assert steps.recorder.running, "the end of an older loop does not end this one"
    steps.recorder.stop(new)
    assert not steps.recorder.running


def test_steps_that_are_left_out_are_divided_like_those_before(board: ProgressPage) -> None:
    steps = Steps(board)
    for number in range(100):
        steps.step(number)
    assert 3 < steps.sums.covered < 50
    assert steps.ms == pytest.approx([100, 300, 400, 700, 300, 400, 600], abs=2)
    assert steps.sums.cpu_ns == pytest.approx(500 * MS, rel=0.01)


@pytest.mark.parametrize("before", [0, 100])
def test_one_step_that_takes_very_long_does_not_divide_those_after_it(
    board: ProgressPage, before: int
) -> None:
    """A rank whose first step took 60 s seemed to compute for minutes while it waited like all others, and
    was called slow."""
    steps = Steps(board)
    for _ in range(before):
        steps.step()
    while not steps.recorder.measuring:
        steps.step()
    steps.step(forward_ms=60_000)
    long_ms = steps.sums.forward_ns / MS
    for _ in range(200):
        steps.step()
    assert steps.sums.forward_ns / MS - long_ms < 2 * 200 * 2


def test_steps_that_stay_long_are_divided_like_each_other(board: ProgressPage) -> None:
    steps = Steps(board)
    for _ in range(100):
        steps.step()
    for _ in range(60):
        steps.step(forward_ms=600)
    before_ms = steps.sums.forward_ns / MS
    for _ in range(60):
        steps.step(forward_ms=600)
    assert steps.sums.forward_ns / MS - before_ms == pytest.approx(60 * 600, rel=0.02)


def test_waits_and_declared_work_are_exact_in_steps_that_are_left_out(board: ProgressPage) -> None:
    steps = Steps(board)
    while steps.recorder.measuring:
        steps.step()
    before = steps.ms
    for phase in (DATA, DECLARED, SNAPSHOT, COMMUNICATION):
        steps.wait(phase, 1000)
    steps.step()
    assert [now - then for now, then in zip(steps.ms, before, strict=True)] == [
        1001, 3, 4, 1007, 3, 1004, 1006
    ]  # fmt: skip


def test_a_wait_around_a_steps_end_goes_on_in_the_next(board: ProgressPage) -> None:
    """`with session.phase("data"): step, batch = next(batches)`."""
    steps = Steps(board)
    with steps.recorder.within(DATA):
        steps.now += 3 * MS
        steps.recorder.complete(0, 1, 0)
        assert steps.ms == [3, 0, 0, 0, 0, 0, 0]
        steps.now += 4 * MS
    steps.spend(FORWARD, 2)
    steps.recorder.complete(1, 1, 0)
    assert steps.ms == [7, 2, 0, 0, 0, 0, 0]


def test_long_steps_are_all_measured_and_the_cost_of_others_is_bounded() -> None:
    assert policy.gap(16, 10_000 * MS, 50) == 1
    assert policy.gap(16, 2 * MS, 1) == 1, "the first ones are"
    for calls in (1, 4, 16):
        gaps = [policy.gap(calls, 2 * MS, measured) for measured in range(10, 40)]
        assert len(set(gaps)) == policy.STAGGER, "not in step with what a script does every k-th time"
        measured = (policy.STEP_COST_NS + calls * policy.CALL_COST_NS) * len(gaps) / sum(gaps)
        assert policy.PASSED_STEP_NS + measured <= policy.ALLOWED_NS


def test_another_session_of_the_process_goes_on_counting(board: ProgressPage) -> None:
    steps = Steps(board)
    steps.step()
    steps.recorder.close()
    later = Steps(board)
    assert later.page.read() == steps.page.read()
    later.step(1)
    assert later.sums.steps == 2 and later.sums.wall_ns == 56 * MS


def test_a_reader_that_meets_the_writer_gets_nothing_half_written(board: ProgressPage) -> None:
    page = StepTimesPage(board)
    page.write(StepSums(steps=1))
    page.write(StepSums(steps=2, wall_ns=9))
    assert page.read() == StepSums(steps=2, wall_ns=9)
    board.memory[SUMS_AT : SUMS_AT + 8] = (3).to_bytes(8, "little")  # the writer has begun again
    assert page.read() is None


def test_another_thread_and_no_page_record_nothing(board: ProgressPage) -> None:
    steps = Steps(board)
    steps.recorder.owner += 1
    steps.wait(DATA, 5)
    assert steps.recorder.depth == 0
    idle = StepRecorder()
    idle.complete(idle.begin(), 1, 1)
    with idle.within(DATA):
        assert not (idle.on or idle.running or idle.measuring)
    assert phases.PHASES == DECLARED + 1


def test_memory_is_read_once_a_second(board: ProgressPage) -> None:
    steps, seen = Steps(board), [100]
    steps.recorder._memory = lambda: (seen[0], 2 * seen[0])
    steps.step(0)
    assert (steps.sums.memory_bytes, steps.sums.memory_peak_bytes) == (100, 200)
    seen[0] = 300
    steps.step(1)
    assert steps.sums.memory_bytes == 100
    steps.now += EVERY_NS
    steps.step(2)
    assert (steps.sums.memory_bytes, steps.sums.memory_peak_bytes) == (300, 600)


def test_the_memory_of_this_process_is_known() -> None:
    now, most = used()
    assert 1 << 20 < now <= most + (64 << 20)
