"""What a training job owes, and does not get: told, and mended, whatever it was that nobody looked at."""

from __future__ import annotations

import pytest

from controlplane.core import view
from controlplane.core.state.pulse import Pulse
from tests.transcripts.language import Play

BEGIN = """elect
hello a
hello b
stored
submit nodes=2 nproc=1 storage={storage}
stored
all starting
all ready held=-1
stored
all forming gen=1
all running gen=1 step=0 bytes={bytes}
started
snapshot 10
all running step=10 snap=10 snapgen=1"""

PARTED = """snapshot 20 on=b
report j.1000001 running step=22 snap=20 before=10
snapshot 30 on=a
report j.1000000 running step=32 snap=30 before=10"""
"""Rank 0 skipped 20, which rank 1 made; then it made 30, and rank 1 had no room."""


def training(storage: str = "", size: int = 1000) -> Play:
    """A job of two ranks that is 10 steps on."""
    stage = Play()
    stage.do(*BEGIN.format(storage=storage, bytes=size).splitlines())
    return stage


def train(stage: Play, first: int, end: int, every_s: int = 1) -> list[str]:
    """So many steps, one each second, of which only beats tell."""
    told = []
    for step in range(first, end):
        told += stage.do(f"all running step={step}", f"live {every_s}")
    return told


def notes(lines: list[str], kind: str) -> list[str]:
    return [line for line in lines if line.startswith(f"Note {kind} ")]


def deaf(stage: Play) -> None:
    """The fault that is looked for: steps that beats show do not drive the job on."""
    stage.cluster.state.jobs["j"].snapshots.lapse_step = 1 << 62


def test_snapshots_that_nobody_drives_on_are_told_and_mended() -> None:
    stage = training()
    train(stage, 11, 20, 10)  # all that waits for a time has had it
    stage.do(*PARTED.splitlines())
    deaf(stage)
    told = train(stage, 33, 75)
    found = notes(told, "snapshots_overdue")
    assert len(found) == 1
    assert "all ranks have 10, the newest of rank 1 on b is 20" in found[0]
    assert "looked at again" in found[0]
    before, after = told[: told.index(found[0])], told[told.index(found[0]) :]
    assert not before, "then somebody else had mended it"
    for node in ("a", "b"):
        assert [line for line in after if line.startswith(f"Release {node} step=10 void=")]
    assert [line for line in after if line.startswith("Alert snapshots_overdue ")]
    [row] = view.jobs(stage.cluster, stage.now)
    assert "snapshots are overdue: none for" in row.reason
    assert view.health(stage.cluster, stage.now).level == "degraded"


def test_it_is_told_when_they_go_on() -> None:
    stage = training()
    train(stage, 11, 20, 10)  # all that waits for a time has had it
    stage.do(*PARTED.splitlines())
    deaf(stage)
    train(stage, 33, 75)
    told = stage.do("snapshot 110") + train(stage, 110, 125)
    [over] = notes(told, "snapshots_overdue_no_more")
    assert "they go on" in over
    assert "1 times" in over
    assert [line for line in told if line.startswith("Alert snapshots_overdue ") and "resolved" in line]
    [row] = view.jobs(stage.cluster, stage.now)
    assert "overdue" not in row.reason


def test_what_no_rank_can_finish_is_given_up_at_the_second_look() -> None:
    """That rank 1 has left 20 out is never seen: its agent does not say in which step it is."""
    stage = training()
    stage.do("snapshot 20 on=a")
    told: list[str] = []
    for step in range(21, 250):
        told += stage.do(f"report j.1000000 running step={step}", "live 1")
    assert len(notes(told, "snapshots_overdue")) >= 2
    assert "Release b step=10 void=20 kept from none" in told
    first = told.index("Release b step=10 void=20 kept from none")
    assert len(notes(told[:first], "snapshots_overdue")) == 2


@pytest.mark.parametrize("size", [0, 1000])
def test_a_job_without_state_owes_nothing(size: int) -> None:
    stage = training(size=size)
    told = train(stage, 11, 120)
    assert bool(notes(told, "snapshots_overdue")) == bool(size)


def test_a_job_that_stands_still_owes_nothing() -> None:
    stage = training()
    assert not notes(stage.do("live 200"), "snapshots_overdue")


def test_checkpoints_that_fail_again_and_again_are_overdue_and_named() -> None:
    stage = training(storage="file:///c")
    told: list[str] = []
    for step in range(100, 1000, 10):
        told += stage.do(f"snapshot {step}", f"all running step={step} snap={step}", "live 5")
        if stage.writing:
            told += stage.do("failed no_space on=a")
            stage.writing.clear()
    found = notes(told, "checkpoints_overdue")
    assert found
    assert "there is none; none is in flight" in found[0]
    assert not notes(told, "snapshots_overdue")


def test_the_bound_follows_the_longest_gap_that_was_seen() -> None:
    pulse = Pulse(1.0)
    for at in (0.0, 100.0, 110.0):
        assert pulse.move((int(at),), 0, at)
    assert not pulse.move((110,), 5, 120.0)
    assert pulse.gap_s == pytest.approx(90.0)
    assert pulse.bound_s(30.0, 5.0) == pytest.approx(450.0)
    pulse.overdue = "told"
    assert pulse.move((9,), 0, 9000.0)
    assert pulse.gap_s == pytest.approx(90.0), "what was overdue is no measure"


def test_the_job_is_looked_at_less_and_less_often() -> None:
    pulse = Pulse(1.0)
    tries = [now for now in range(2000) if pulse.try_again(float(now), 10.0)]
    assert tries[:6] == [0, 10, 30, 70, 150, 310]
    assert tries[-1] - tries[-2] == 160
