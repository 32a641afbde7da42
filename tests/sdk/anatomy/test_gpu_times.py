"""The events of a GPU: read once it has passed them, used again, given up where they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from holdfast.anatomy import policy
from holdfast.anatomy.gpu import GpuTimes
from holdfast.anatomy.phases import BACKWARD, FORWARD, LOSS, OTHER, PHASES
from holdfast.anatomy.recorder import StepRecorder
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.step_times import StepSums, StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


class Event:
    """An event of a device that is 100 ms behind the host; its clock is `now`, in ms."""

    now: ClassVar[float] = 0.0
    made: ClassVar[int] = 0
    broken: ClassVar[bool] = False
    captured: ClassVar[bool] = False

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        Event.made += 1
        self.at = -1.0

    def record(self) -> None:
        self.at = Event.now

    def query(self) -> bool:
        return Event.now >= self.at + 100

    def elapsed_time(self, later: Event) -> float:
        if Event.broken:
            raise RuntimeError("events of two devices")
        return later.at - self.at


@pytest.fixture
def times() -> GpuTimes:
    Event.now, Event.made, Event.broken, Event.captured = 0.0, 0, False, False
    return GpuTimes(PHASES, Event, lambda: Event.captured)


def steps(recorder: StepRecorder, count: int) -> None:
    """Steps of 10 ms for the host: 1 forward, 2 loss, 4 backward, 3 other."""
    for number in range(count):
        for phase, ms in ((FORWARD, 1), (LOSS, 2), (BACKWARD, 4), (OTHER, 3)):
            if phase == BACKWARD:
                recorder.settle(backward=True)
            recorder.switch(phase)
            Event.now += ms
        recorder.calls = recorder.passes = 1
        recorder.complete(number, 1, 0)


def sums(page: ProgressPage) -> StepSums:
    found = StepTimesPage(page).read()
    assert found is not None
    return found


def made(tmp_path: Path, gpu: GpuTimes) -> tuple[StepRecorder, ProgressPage]:
    page = ProgressPage.create(tmp_path / "m.board")
    recorder = StepRecorder(StepTimesPage(page), lambda: round(Event.now * MS), lambda: 0)
    recorder.gpu = gpu
    recorder.begin()
    return recorder, page


def test_steps_are_covered_when_the_gpu_has_passed_them(tmp_path: Path, times: GpuTimes) -> None:
    recorder, page = made(tmp_path, times)
    steps(recorder, 9)
    assert sums(page).covered == 0, "none has passed yet"
    steps(recorder, 91)
    found = sums(page)
    assert 3 < found.covered < 50 and Event.made < policy.STEPS_IN_FLIGHT_MAX * 12
    assert (found.forward_ns, found.backward_ns, found.other_ns) == pytest.approx(
        (300 * MS, 400 * MS, 300 * MS), rel=0.15
    )


def test_events_that_cannot_be_read_leave_the_hosts_times_not_covered(
    tmp_path: Path, times: GpuTimes, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, page = made(tmp_path, times)
    Event.broken = True
    steps(recorder, 60)
    found = sums(page)
    assert times.failed and "events of two devices" in caplog.text
    assert found.covered == 0 and found.steps == 60 and found.wall_ns == 600 * MS


def test_the_number_of_events_is_bounded(times: GpuTimes) -> None:
    for _ in range(3):
        times.begin()
        for _ in range(policy.EVENTS_MAX + 5):
            times.mark(OTHER)
        times.end(covered=True, cpu_ns=0)
    assert times.done() == [] and Event.made == policy.EVENTS_MAX
    for _ in range(3 * policy.STEPS_IN_FLIGHT_MAX):
        times.begin()
        times.mark(OTHER)
        times.end(covered=True, cpu_ns=0)
    Event.now = 200.0
    assert len(times.done()) == policy.STEPS_IN_FLIGHT_MAX and Event.made == policy.EVENTS_MAX


def test_a_step_that_captures_a_graph_is_dropped(times: GpuTimes) -> None:
    times.begin()
    Event.captured = True
    times.mark(OTHER)
    times.end(covered=True, cpu_ns=0)
    Event.now = 500.0
    assert times.done() == []
