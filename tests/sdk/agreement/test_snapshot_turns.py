"""All ranks take the snapshot of a boundary, or none does, by what each says of its own arena."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, NoReturn

import pytest
import torch

from holdfast.agreement.snapshot_turns import NUMBERS, SnapshotTurns
from holdfast.environment import Environment
from holdfast.ipc.agent_client import AgentClient
from holdfast.ipc.arena import Arena
from holdfast.ipc.messages.agent import ArenaMade
from holdfast.ipc.messages.rank import Snapshot
from holdfast.ipc.skips import CopyState, SkipKind
from holdfast.reentry import snapshotting
from holdfast.reentry.runtime import Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.rank_state import RankState


class Member:
    """A rank with an arena of its own, and an agent whose orders the test gives."""

    def __init__(self, path: Path, rank: int, *, auto: bool = False) -> None:
        alone = Environment.read({})
        environment = dataclasses.replace(alone, snapshot_every=10, snapshot_auto=auto)
        runtime = Runtime(environment, seed=0, backend="gloo", data_change="refuse", total_steps=None)
        self.state: RankState = runtime.state
        self.turns: SnapshotTurns = runtime.turns
        self.state.rank, self.state.world_size, self.state.generation = rank, 2, 1
        self.state.tracked.add("model", torch.nn.Linear(4, 4))
        self.agent = AgentClient(str(path), _never, _never, _never)
        self.state.agent = self.agent
        with Arena.create(path, self.state.snapshots.needs() + (1 << 16)) as arena:
            self.agent.orders.arena = ArenaMade(str(path), arena.slot_bytes)

    def snapshot(self, step: int) -> None:
        self.state.completed = step
        assert snapshotting.snapshot(self.state, self.agent) is None

    @property
    def told(self) -> list[tuple[int, bool]]:
        """The snapshots that its agent is told of: step, and whether it is offered."""
        sent = [message for message in self.agent._outbox if isinstance(message, Snapshot)]
        return [(made.step, made.offered) for made in sent]


def _never(*_: object) -> NoReturn:
    raise AssertionError("its thread is not started")


def meet(step: int, *members: Member) -> None:
    for member in members:
        member.state.completed = step
    rows = [member.turns.numbers() for member in members]
    assert {len(row) for row in rows} == {NUMBERS}
    for member in members:
        member.turns.learn(rows, 0.001)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Member, Member]:
    return Member(tmp_path / "0", 0), Member(tmp_path / "1", 1)


def test_a_rank_that_has_not_heard_of_the_release_keeps_the_others_back(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for member in pair:
        member.snapshot(10)
    meet(20, *pair)
    assert first.turns.refused is None, "its other slot is free"
    for member in pair:
        member.snapshot(20)
    first.agent.orders.released_step = 20
    meet(30, *pair)
    for member in pair:
        assert member.turns.refused is not None
        assert member.turns.refused.kind is SkipKind.UNRELEASED
        assert "rank 1" in member.turns.refused.reason
    second.agent.orders.released_step = 20
    meet(40, *pair)
    assert first.turns.refused is None is second.turns.refused


def test_a_slot_that_the_agent_reads_keeps_the_others_back(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    for step in (10, 20):
        for member in pair:
            member.agent.orders.released_step = step
            member.snapshot(step)
    with Arena.open(tmp_path / "1") as arena:
        older = arena.find(10)
        assert older is not None
        with arena.pinned(older):
            meet(30, *pair)
            refused = pair[0].turns.refused
            assert refused is not None and refused.kind is SkipKind.BEING_READ
        meet(30, *pair)


def test_what_was_agreed_upon_holds_for_one_boundary(pair: tuple[Member, Member]) -> None:
    first, _ = pair
    for step in (10, 20):
        first.snapshot(step)
    meet(30, *pair)
    assert first.turns.refused is not None
    first.state.completed = 31  # a snapshot that was put off, where nothing is exchanged
    assert first.turns.refused is None


def test_a_rank_without_shared_memory_keeps_nobody_back(pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.agent.orders.arena = None
    first.snapshot(10)
    meet(20, *pair)
    assert first.turns.refused is None is second.turns.refused


def test_all_use_the_largest_number_that_one_proposes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quick, slow = Member(tmp_path / "0", 0, auto=True), Member(tmp_path / "1", 1, auto=True)
    for member, cost_s in ((quick, 0.001), (slow, 0.03)):
        member.state.shard_id = f"part-{member.state.rank}"
        for number in range(5):
            member.state.spacing.step_begins(float(number))
            member.state.spacing.step_ends(number + 1.0)
            member.state.spacing.snapshot_took(cost_s)
    with caplog.at_level(logging.INFO, "holdfast.sdk"):
        meet(10, quick, slow)
    assert (quick.state.spacing.every, slow.state.spacing.every) == (2, 2)
    news = "a snapshot after every 2 steps from step 10 on (--snapshot-every auto): a snapshot takes 1.00 ms"
    assert news in caplog.text
    told = quick.state.spacing.take_news()
    assert told.startswith(news), "the next report of a snapshot tells it, once"
    assert not quick.state.spacing.take_news() and not slow.state.spacing.take_news()
    quick.turns.begin()
    assert quick.state.spacing.every == 10, "a new generation has agreed on nothing yet"


def test_ranks_that_take_more_than_asked_for_wait_for_no_release(tmp_path: Path) -> None:
    """Each boundary lets go of what all hold a newer one of; the coordinator says nothing at all."""
    pair = tuple(Member(tmp_path / str(rank), rank, auto=True) for rank in range(2))
    for member in pair:
        member.state.letting_go.on = True
    for step in range(1, 24):
        meet(step, *pair)
        for member in pair:
            assert member.turns.refused is None, (step, member.turns.refused)
            assert snapshotting.snapshot(member.state, member.agent, agreed=True) is None
    for member in pair:
        slots = member.state.snapshots.slots(1)
        assert (slots.newest, slots.older) == (23, 1), "1 was offered, and is not answered"
        assert member.told == [(1, True)]


def test_a_step_of_which_a_checkpoint_is_wanted_is_offered_at_once(tmp_path: Path) -> None:
    member = Member(tmp_path / "0", 0, auto=True)
    member.state.letting_go.on = True
    for step in (6, 7, 8):
        meet(step, member)
        if step == 7:
            member.snapshot(step)
        else:
            snapshotting.snapshot(member.state, member.agent, agreed=True)
    assert member.told == [(6, True), (7, True)]
    assert member.state.snapshots.slots(1).older == 7, "it is kept for the checkpoint"


def test_the_step_that_other_nodes_have_is_kept_until_they_have_the_next_one(
    pair: tuple[Member, Member],
) -> None:
    """The other slot takes a snapshot after every step. While copies are on their way both are needed."""

    def step(number: int, *, takes: bool) -> None:
        meet(number, *pair)
        for member in pair:
            assert (member.turns.refused is None) is takes, member.turns.refused
            if takes:
                assert snapshotting.snapshot(member.state, member.agent, agreed=True) is None

    def hears(released: int, copies: CopyState, *members: Member) -> None:
        for member in members:
            member.agent.orders.released_step = released
            with Arena.open(member.state.snapshots.path) as arena:
                arena.copies = copies

    for member in pair:
        member.state.letting_go.on = True
    step(10, takes=True)
    hears(10, CopyState.SETTLED, *pair)
    for number in range(11, 15):
        step(number, takes=True)
    assert [member.state.snapshots.slots(1).older for member in pair] == [10, 10]
    for member in pair:
        member.state.letting_go.force(15)
    step(15, takes=True)
    hears(15, CopyState.OWED, *pair)
    step(16, takes=False)
    hears(15, CopyState.SETTLED, pair[0])
    step(17, takes=False)
    assert pair[0].turns.refused is not None and pair[0].turns.refused.kind is SkipKind.UNCOPIED
    assert "rank 1" in pair[0].turns.refused.reason
    hears(15, CopyState.SETTLED, pair[1])
    step(18, takes=True)
    assert [member.state.snapshots.slots(1).older for member in pair] == [15, 15]
