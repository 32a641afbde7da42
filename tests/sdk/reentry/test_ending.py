"""The end of a job: the last snapshot, whatever room there is for it when training ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sdk.node import Member, Node

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SMALL = Path(__file__).parents[1] / "small.py"
TRAIN = Path(__file__).parents[1] / "train.py"


class Patient(Node):
    """Releases nothing and completes nothing until it is told to."""

    patient = True

    def on_snapshot(self, member: Member, message: Message) -> None:
        if not self.patient:
            super().on_snapshot(member, message)

    def decide(self) -> None:
        self.complete = self.patient
        super().decide()
        self.complete = self.complete and not self.patient


def snapshots(member: Member) -> list[Any]:
    return [message["step"] for message in member.said if message["op"] == "snapshot"]


def test_the_last_snapshot_is_made_once_there_is_room(zygote: Zygote) -> None:
    """Nobody has released step 10 when training ends at 12: the rank has finished all the same."""
    node = Patient(zygote, TRAIN, 2)
    with node:
        node.run(lambda: node.generation == 1 and all(node.seat(r).finished == 12 for r in (0, 1)))
        ranks = [node.seat(0), node.seat(1)]
        assert [snapshots(rank) for rank in ranks] == [[5, 10], [5, 10]]
        assert not any(rank.last("snapshot_skipped") for rank in ranks), "it still waits for room"
        node.everyone({"op": "release", "step": 5, "void": 10})
        node.run(lambda: all(12 in snapshots(rank) for rank in ranks))
        node.patient = False
        node.run()
        assert len(node.results()) == 2


def test_a_step_that_has_its_snapshot_needs_no_other_at_the_end(zygote: Zygote) -> None:
    with Node(zygote, TRAIN, 2, STEPS="10") as node:
        node.run()
        assert [snapshots(member) for member in node.members.values()] == [[5, 10], [5, 10]]


def skipped(member: Member) -> str:
    """Why its last snapshot was skipped; "" when none was."""
    last = member.last("snapshot_skipped")
    return str(last["reason"]) if last is not None else ""


def test_an_arena_whose_lock_is_held_costs_snapshots_and_nothing_else(zygote: Zygote) -> None:
    with Node(zygote, TRAIN, 2, STEPS="16") as node:
        node.run(lambda: node.generation == 1 and all(node.seat(r).arena for r in (0, 1)))
        arena = node.seat(1).arena
        assert arena is not None
        with arena.path.open("rb") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            node.run(lambda: "is locked by a process that does not continue" in skipped(node.seat(1)))
        node.run()
        assert len(node.generations) == 1 and len(node.results()) == 2


def test_a_step_left_by_break_after_its_optimizer_counts(zygote: Zygote) -> None:
    """Its state is the next step's: to call it by the old number would train that step twice."""
    with Node(zygote, SMALL, 1, MODE="break") as node:
        node.run()
        (result,) = node.results()
        assert result["seen"] == [4]
        finished = node.members["job.0"].last("finished")
        assert finished is not None and finished["step"] == 5
