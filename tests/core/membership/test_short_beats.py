"""Short heartbeats: a leader that gets them knows and does what one knows and does that gets whole ones."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from benchmarks.scale import shape
from controlplane.core.cluster import Cluster
from controlplane.core.membership import members
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, Failure, MemberPhase, MemberStatus, Role
from controlplane.core.records.step_beats import WHOLE_EVERY, BeatShortener
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member
from tests.core.make import spec

NODES = 3
JOB = shape.job_of(0)
PERSON = (
    ev.CheckpointWanted(JOB, "a test"),
    ev.PauseRequested(JOB, on=True, reason="a test"),
    ev.PauseRequested(JOB, on=False, reason="a test"),
    ev.CordonRequested(shape.name_of(1), on=True, reason="a test"),
)


class Pair:
    """Two leaders of one job on NODES nodes. The second one hears the same, but short heartbeats."""

    def __init__(self, *, auto: bool = True) -> None:
        self.now, self.seq = 0.0, 0
        self.whole, self.short = Cluster(), Cluster()
        self.shorteners = [BeatShortener() for _ in range(NODES)]
        self.sent: list[type] = []  # the kinds of heartbeats that the second leader has heard
        job, state, generation = shape.training(JOB, 0, NODES)
        job = dataclasses.replace(job, snapshot_auto=auto, snapshot_every=2, storage="file:///c")
        names = tuple(map(shape.name_of, range(NODES)))
        self.tell(ev.Elected(2, names, (job,), (state,), (generation,)))
        self.statuses = [list(shape.members_of(node, 100)) for node in range(NODES)]
        for node in range(NODES):
            self.hello(node)

    def hello(self, node: int) -> None:
        joined = shape.joined(node, 1, 0)
        self.tell(dataclasses.replace(joined, members=tuple(self.statuses[node])))
        self.shorteners[node].forget()

    def tell(self, event: Any, short: Any = None) -> None:
        """Have both take this event, the second one in its short form. Both do and know the same."""
        did = self.whole.step(self.now, event)
        does = self.short.step(self.now, short or event)
        assert does == did
        for each in (self.whole, self.short):
            each.check()
        assert book(self.short) == book(self.whole)
        for effect in did:
            if isinstance(effect, fx.STORES):
                self.tell(ev.Stored(effect.ticket))

    def beat(self, node: int) -> None:
        self.seq += 1
        told = ev.NodeBeat(shape.name_of(node), 1, self.seq, shape.PORT, tuple(self.statuses[node]))
        short = self.shorteners[node].shorten(told)
        self.sent.append(type(short))
        self.tell(told, short)

    def report(self, node: int, rank: int, **changes: Any) -> None:
        self.seq += 1
        self.shorteners[node].forget()
        self.statuses[node][rank] = dataclasses.replace(self.statuses[node][rank], **changes)
        self.tell(ev.MemberReport(shape.name_of(node), 1, self.seq, self.statuses[node][rank]))

    def train(self, node: int, steps: int) -> None:
        """The node's ranks take so many steps, and make snapshots of even ones."""
        for rank, status in enumerate(self.statuses[node]):
            if status.phase is not MemberPhase.RUNNING:
                continue
            step = status.step + steps
            newest = (step - 1) // 2 * 2
            before = status.snapshot_step if newest > status.snapshot_step else status.snapshot_before
            self.statuses[node][rank] = dataclasses.replace(
                status, step=step, snapshot_step=newest, snapshot_before=before
            )


def book(cluster: Cluster) -> Any:
    """All that a leader knows of its job and nodes, but what only makes it quick."""
    job = cluster.state.jobs[JOB]
    members_ = [(mb.status, *_fields(mb, "told", "_newer", "words")) for mb in job.members.values()]
    nodes = [_fields(node, "whole", "walk") for node in cluster.state.nodes.values()]
    concerns = (job.recovery, job.restore, job.replicas, job.checkpoints, job.changes, job.numbers)
    kept = [repr(_fields(each, "watched")) for each in concerns]
    return job.phase, members_, nodes, kept, repr(job.snapshots), sorted(job.unread), cluster.counts


def _fields(record: Any, *without: str) -> list[Any]:
    names = (field.name for field in dataclasses.fields(record) if field.name not in without)
    return [getattr(record, name) for name in names]


def test_steps_are_heard_by_short_heartbeats_alone() -> None:
    pair = Pair()
    for _ in range(WHOLE_EVERY):
        for node in range(NODES):
            pair.train(node, 3)
            pair.beat(node)
        pair.now += 1.0
    assert pair.sent.count(ev.NodeBeat) == NODES and len(pair.sent) == NODES * WHOLE_EVERY
    pair.beat(0)
    assert pair.sent[-1] is ev.NodeBeat, "one in so many is whole"
    job = pair.short.state.jobs[JOB]
    assert {mb.status and mb.status.step for mb in job.seated()} == {100 + 3 * WHOLE_EVERY}
    assert job.restore.newest_step == 100 + 3 * WHOLE_EVERY


def test_a_report_makes_the_next_heartbeat_whole() -> None:
    pair = Pair()
    pair.beat(0)
    pair.beat(0)
    pair.report(0, 0, stalled_s=9.0)
    pair.report(0, 0, stalled_s=0.0)
    pair.beat(0)
    assert pair.sent == [ev.NodeBeat, ev.StepBeat, ev.NodeBeat]


@pytest.mark.parametrize(
    "columns",
    [((1,) * 7, (1,) * 8, (1,) * 8), ((1,) * 9, (1,) * 9, (1,) * 9), ((), (), ())],
    ids=["uneven", "more than it has members", "none"],
)
def test_columns_of_other_members_change_nothing(columns: tuple[tuple[int, ...], ...]) -> None:
    pair = Pair()
    pair.beat(0)
    known = book(pair.short)
    effects = pair.short.step(1.0, ev.StepBeat(shape.name_of(0), 1, 5, 1, *columns))
    assert any(isinstance(each, fx.Refuse) and each.retry for each in effects)
    assert book(pair.short)[1:2] == known[1:2]


def test_an_agent_whose_whole_heartbeat_is_not_known_has_to_come_anew() -> None:
    pair = Pair()
    pair.beat(0)
    steps = (200,) * shape.RANKS
    effects = pair.short.step(1.0, ev.StepBeat(shape.name_of(0), 1, 9, 8, steps, steps, steps))
    (refused,) = [each for each in effects if isinstance(each, fx.Refuse)]
    assert refused.retry and "heartbeat 8" in refused.reason and "come anew" in refused.reason
    assert pair.short.state.jobs[JOB].restore.newest_step == 100


def test_an_agent_of_which_parts_cannot_be_read_is_not_sent_away() -> None:
    pair = Pair()
    beat = ev.NodeBeat(shape.name_of(0), 1, 1, shape.PORT, tuple(pair.statuses[0][1:]), unread=(f"{JOB}.0",))
    pair.short.step(1.0, beat)
    steps = (200,) * shape.RANKS
    effects = pair.short.step(9.0, ev.StepBeat(shape.name_of(0), 1, 2, 1, steps, steps, steps))
    assert not any(isinstance(each, fx.Refuse) for each in effects)
    assert pair.short.state.nodes[shape.name_of(0)].last_contact_at == 9.0, "it lives all the same"


def test_an_older_short_heartbeat_changes_nothing() -> None:
    pair = Pair()
    pair.beat(0)
    for step, seq in ((300, 9), (200, 8)):
        steps = (step,) * shape.RANKS
        pair.short.step(1.0, ev.StepBeat(shape.name_of(0), 1, seq, 1, steps, steps, steps))
    assert pair.short.state.jobs[JOB].members[f"{JOB}.0"].steps[0] == 300


def test_a_rank_that_its_agent_lists_no_more_is_missed() -> None:
    """No heartbeat is short then: it has other members than the whole one."""
    pair = Pair()
    pair.beat(0)
    pair.beat(0)
    del pair.statuses[0][3]
    pair.beat(0)
    assert pair.sent[-1] is ev.NodeBeat
    assert pair.short.state.jobs[JOB].members[f"{JOB}.3"].failure is not None


def test_a_member_that_is_on_the_node_since_is_missed() -> None:
    """Its agent does not list it: that is no heartbeat in which only steps have moved."""
    pair = Pair()
    pair.beat(0)
    pair.beat(0)
    for each in (pair.whole, pair.short):
        assert each is pair.whole or each.state.nodes[shape.name_of(0)].walk is not None
        each.state.jobs[JOB].add(Member(f"{JOB}.99", JOB, shape.name_of(0), Role.SPARE))
    pair.train(0, 1)
    pair.beat(0)
    assert pair.sent[-1] is ev.StepBeat
    assert pair.short.state.nodes[shape.name_of(0)].walk is None


def test_ranks_of_a_node_may_be_in_different_steps() -> None:
    pair = Pair()
    pair.beat(0)
    for further in (5, 7, 2):
        pair.statuses[0] = [
            dataclasses.replace(status, step=status.step + rank * further % 8)
            for rank, status in enumerate(pair.statuses[0])
        ]
        pair.beat(0)
    assert pair.sent[-1] is ev.StepBeat
    newest = max(status.step for status in pair.statuses[0])
    assert pair.short.state.jobs[JOB].restore.newest_step == newest > pair.statuses[0][0].step


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_both_leaders_do_the_same(seed: int, auto: bool) -> None:
    rng, pair = random.Random(seed), Pair(auto=auto)
    for _ in range(120):
        pair.now += rng.choice((0.0, 0.01, 0.3, 1.0))
        _happen(rng, pair)
    assert pair.sent.count(ev.StepBeat) > 10


def _happen(rng: random.Random, pair: Pair) -> None:
    node, rank, chance = rng.randrange(NODES), rng.randrange(shape.RANKS), rng.random()
    status = pair.statuses[node][rank]
    if chance < 0.8:
        if rng.random() < 0.8:
            pair.train(node, rng.randrange(4))
        pair.beat(node)
    elif chance < 0.86:
        pair.report(node, rank, **rng.choice(_news(status)))
    elif chance < 0.9:
        event = ev.SnapshotReady(shape.name_of(node), 1, status.member, JOB, 1, status.snapshot_step, 0.01)
        pair.tell(event)
    elif chance < 0.93:
        pair.hello(node)
    elif chance < 0.96:
        pair.tell(ev.Tick())
    elif chance < 0.965:
        pair.tell(rng.choice(PERSON))
    elif chance < 0.97:
        killed = Failure(Cause.SIGNALED, "killed", signal=9)
        pair.report(node, rank, phase=MemberPhase.EXITED, pid=0, failure=killed)


def _news(status: MemberStatus) -> tuple[dict[str, Any], ...]:
    return (
        {"stalled_s": 0.0 if status.stalled_s else 7.0},
        {"activity": "optimizer"},
        {"state_bytes": status.state_bytes + 1},
        {"no_room": "" if status.no_room else "the disk is full"},
        {"shard": "all"},
        {"offers": not status.offers},
        {"held_step": status.step},
        {"former_step": status.snapshot_step - 4, "former_generation": 1},
    )


def test_a_new_life_of_a_job_is_not_taken_for_the_one_before() -> None:
    """The walk over a node's members ends with the job that it was begun for."""
    pair = Pair()
    pair.beat(0)
    pair.beat(0)
    old = pair.short.state.jobs[JOB]
    for each in (pair.whole, pair.short):
        each.state.jobs[JOB] = Job(spec(job=JOB), hosts=each.state.hosts)
    known = [mb.steps for mb in old.members.values()]
    pair.train(0, 5)
    pair.beat(0)
    assert [mb.steps for mb in old.members.values()] == known


def test_what_an_arena_holds_is_in_order() -> None:
    status = shape.members_of(0, 100)[0]
    assert members.slots(status, 90, 80) == ((1, 80), (1, 90))
    assert members.slots(status, 80, 90) == ((1, 80), (1, 90))
    assert members.slots(status, 90, -1) == ((1, 90),) and members.slots(status, -1, -1) == ()
    former = dataclasses.replace(status, former_step=70, former_generation=0)
    assert members.slots(former, 90, -1) == ((0, 70), (1, 90))
