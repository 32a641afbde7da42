"""Records that are made the quick way are the records."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import (
    NO_STEP,
    Cause,
    Failure,
    Generation,
    JobSpec,
    MemberPhase,
    MemberStatus,
    Placement,
    Resume,
    Role,
    Tier,
)
from controlplane.simulation import records
from controlplane.simulation.ranks import Rank

FAILURE = Failure(Cause.SIGNALED, "killed", signal=9)


def test_a_status_is_as_its_class_makes_it() -> None:
    rank = Rank(fx.Launch("n3", "job.7", JobSpec("job", ("train.py",), "/"), Role.RANK, rank=5), "part 1")
    rank.phase, rank.generation, rank.step, rank.held = MemberPhase.RUNNING, 4, 77, NO_STEP
    rank.copied, rank.copied_by, rank.failure = 60, 3, FAILURE
    made = records.status(rank, "job")
    assert type(made) is MemberStatus
    assert made == MemberStatus(
        "job.7", "job", MemberPhase.RUNNING, True, generation=4, rank=5, step=77, held_step=NO_STEP, pid=1,
        store="n3:1", state_bytes=records.STATE_BYTES, snapshot_step=60, snapshot_generation=3,
        failure=FAILURE, shard="part 1",
    )  # fmt: skip
    assert dataclasses.replace(made, step=78).step == 78
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.step = 0  # type: ignore[misc]


def test_a_first_step_is_as_its_class_makes_it() -> None:
    seat = Placement(5, "job.7", "n3", 1)
    generation = Generation("job", 4, 1, (seat,), "n3:1", "n3:2", Resume(Tier.MEMORY, 60), "a test")
    made = records.started(seat, 2, generation, (1.0, 2.0, 3.0))
    assert type(made) is ev.MemberStarted
    assert made == ev.MemberStarted("n3", 2, "job.7", "job", 4, 61, 1.0, 2.0, 3.0)
