"""What may be overwritten: never on the word of some ranks only."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from controlplane.core.checkpoint import due, releasing, voiding
from controlplane.core.membership import members, nodes
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import (
    NO_STEP,
    Generation,
    JobPhase,
    MemberPhase,
    MemberStatus,
    Resume,
    Role,
    Source,
    Tier,
)
from controlplane.core.records.timing import CoreSettings
from controlplane.core.records.words import NEVER_STEP
from controlplane.core.state.cluster_state import ClusterState, Node
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member
from controlplane.core.state.saving import CheckpointRequest
from tests.core.make import seats, spec
from tests.core.test_cluster import running


def job_of_three(state: ClusterState, *, auto: bool = False) -> Job:
    job = Job(spec(snapshot_every=10, snapshot_auto=auto))
    places = seats(1, 1, 1)
    for seat in places:
        job.add(Member(seat.member, "j", seat.node, Role.RANK, seat.rank))
    job.sit(places)
    job.turn(Generation("j", 1, 1, job.seats, "s", "m", Resume(Tier.FRESH, 0), ""))
    state.jobs["j"] = job
    return job


def tell(
    job: Job, rank: int, step: int, newest: int, before: int, now: float = 0.0, *, offers: bool = False
) -> None:
    job.members[f"j.{rank}"].seen_at = now
    job.members[f"j.{rank}"].status = MemberStatus(
        f"j.{rank}", "j", MemberPhase.RUNNING, elastic=True, generation=1, rank=rank, step=step,
        snapshot_step=newest, snapshot_generation=1, snapshot_before=before, offers=offers,
    )  # fmt: skip
    job.restore.newest_step = max(job.restore.newest_step, step)
    job.changed(job.members[f"j.{rank}"])


def orders(state: ClusterState, job: Job) -> list[fx.Release]:
    for name in ("a", "b", "c"):
        state.nodes[name].state = "up"
    releasing.from_statuses(job)
    releasing.reconcile(state, job)
    return [effect for effect in state.take() if isinstance(effect, fx.Release)]


def test_a_new_leader_voids_nothing_before_it_has_heard_every_rank() -> None:
    """Rank 1 left out step 22, and holds 20, as rank 0 does: rank 2 may too, and then 20 is whole."""
    state = ClusterState(CoreSettings())
    state.nodes = {name: Node(name) for name in ("a", "b", "c")}
    job = job_of_three(state)
    tell(job, 0, 50, 22, 20)
    tell(job, 1, 50, 20, 10)
    assert orders(state, job) == []
    tell(job, 2, 50, 22, 20)
    assert {(order.step, order.void_step) for order in orders(state, job)} == {(20, -1)}
    assert (job.snapshots.released, job.snapshots.voided) == (20, -1)


def passed_over(state: ClusterState, job: Job, step: int) -> list[fx.Release]:
    """Rank 0 has made another snapshot than the others, and all train on: what they are told now."""
    for rank, newest in enumerate((40, 30, 30)):
        tell(job, rank, step, newest, 20, state.now)
    return orders(state, job)


def test_a_new_leader_does_not_take_what_was_trained_before_it_for_the_pace_of_the_ranks() -> None:
    """What it releases is 380 steps old. Void up to where such a pace would lead, all that is made in the
    next hundreds of steps would be lost."""
    state = ClusterState(CoreSettings())
    state.nodes = {name: Node(name) for name in ("a", "b", "c")}
    job, state.now = job_of_three(state), 100.0
    passed_over(state, job, 400)
    assert (job.snapshots.released, job.snapshots.voided) == (20, -1)
    passed_over(state, job, 400)
    assert job.snapshots.voided == -1, "nobody knows the pace yet"
    state.now = 101.0
    told = passed_over(state, job, 405)
    assert {order.void_step for order in told} == {job.snapshots.voided}
    assert 405 <= job.snapshots.voided <= 405 + 4 * 5


def test_what_a_cut_network_held_up_is_no_measure_of_the_pace_of_the_ranks() -> None:
    """The last rank's word of step 20 comes when all are 380 steps on."""
    state = ClusterState(CoreSettings())
    state.nodes = {name: Node(name) for name in ("a", "b", "c")}
    job, state.now = job_of_three(state), 100.0
    releasing.begin(job)
    for rank, newest in enumerate((40, 30)):
        tell(job, rank, 400, newest, 20, state.now)
    orders(state, job)
    passed_over(state, job, 400)
    state.now = 101.0
    passed_over(state, job, 405)
    assert 405 <= job.snapshots.voided <= 405 + 4 * 5


def test_what_was_released_while_an_agent_was_away_is_said_to_it_when_it_is_back() -> None:
    state = ClusterState(CoreSettings())
    state.nodes = {name: Node(name) for name in ("a", "b", "c")}
    job = job_of_three(state)
    for rank in range(3):
        tell(job, rank, 21, 20, 10)
    assert {order.node for order in orders(state, job)} == {"a", "b", "c"}
    assert orders(state, job) == []
    state.nodes["b"] = Node("b", incarnation=1)
    nodes.joined(state, ev.NodeJoined("b", 2, "launcher", "host", 1, 1, ()))
    job.members["j.1"].status = job.members["j.0"].status
    assert orders(state, job) == [fx.Release("b", "j", 20, kept_from=NEVER_STEP)]
    assert orders(state, job) == []


KEPT = [
    # Time decides: any step may be the one.
    ({"storage": "file:///c", "checkpoint_every_s": 0.5}, (26, 31, 36), 30),
    ({"storage": "file:///c", "checkpoint_every": 30}, (30, 0, 0), 30),
    ({"storage": "file:///c", "checkpoint_every": 31}, (31, 31, 0), NO_STEP),
    ({"storage": ""}, (NEVER_STEP, NEVER_STEP, NEVER_STEP), NO_STEP),
]
"""Fields of a job; from which step on its ranks are told to keep with the releases of 25, 30 and 35; and
whether a checkpoint begins from 30."""


@pytest.mark.parametrize(("fields", "kept", "begins"), KEPT)
def test_no_checkpoint_begins_from_a_step_that_the_ranks_do_not_keep(
    fields: dict[str, Any], kept: tuple[int, int, int], begins: int
) -> None:
    """Unless the coordinator releases their slots: then they keep each."""
    state, job = agreeing()
    job.spec = dataclasses.replace(job.spec, **fields)
    job.checkpoints.begun_at = state.now

    def told(*steps: int) -> tuple[int, set[int]]:
        for rank in range(3):
            tell(job, rank, steps[0] + 1, *steps, offers=True)
        releasing.from_statuses(job)
        step = releasing.reconcile(state, job)
        return step, {each.kept_from for each in state.take() if isinstance(each, fx.Release)}

    assert told(25, 20)[1] == {kept[0]}
    assert told(30, 25) == (begins, {kept[1]})
    job.snapshots.kept_from = None  # a new leader does not know what they have heard
    assert told(35, 30) == (NO_STEP, {kept[2]})
    job.snapshots.by_ranks = False
    assert releasing.common(job) == 35


@pytest.mark.parametrize("waits", ["wanted_now", "asked"])
def test_every_step_is_kept_while_somebody_waits_for_a_checkpoint(waits: str) -> None:
    state, job = agreeing()
    job.spec = dataclasses.replace(job.spec, storage="file:///c", checkpoint_every=1000)
    assert due.kept_from(state, job, 25) == 1000
    if waits == "wanted_now":
        job.checkpoints.wanted_now = True
    else:
        ask = CheckpointRequest("a", "j.1", "r", 25, 1, at=0.0)
        job.checkpoints.asks["j.1", "r"] = ask
    assert due.kept_from(state, job, 25) == 0


def agreeing() -> tuple[ClusterState, Job]:
    """Three ranks that agree among themselves what they overwrite, all with step 20, which is released."""
    state = ClusterState(CoreSettings())
    state.nodes = {name: Node(name) for name in ("a", "b", "c")}
    job, state.now = job_of_three(state, auto=True), 100.0
    job.phase = JobPhase.RUNNING
    for rank in range(3):
        tell(job, rank, 21, 20, -1, offers=True)
    assert {order.step for order in orders(state, job)} == {20}
    return state, job


def test_ranks_that_agree_among_themselves_are_not_helped_to_room() -> None:
    """They take a snapshot after every step and tell of some: the newest of these is many steps old."""
    state, job = agreeing()
    for rank in range(3):
        tell(job, rank, 4000, 20, -1, state.now, offers=True)
    members.see_step(state, job, MemberPhase.RUNNING, 4000)
    assert math.isinf(state.deadlines.next())
    state.now += 60.0
    assert orders(state, job) == [] and not voiding.missed_a_snapshot(job, job.members["j.0"])
    assert state.deadlines.next() >= state.now and job.snapshots.voided == -1
    releasing.begin(job)
    for rank in range(3):
        tell(job, rank, 4000, 20, -1)
    orders(state, job)
    assert voiding.missed_a_snapshot(job, job.members["j.0"]), "until they say so in the next generation"


def test_the_first_snapshot_of_a_generation_that_one_rank_lacks_is_voided_in_time() -> None:
    """The ranks have nothing in common yet, so the others keep it, and report nothing more."""
    state, job = agreeing()
    releasing.begin(job)
    for rank, newest in enumerate((25, 25, -1)):
        tell(job, rank, 60, newest, -1, state.now, offers=True)
    releasing.from_statuses(job)
    members.see_step(state, job, MemberPhase.RUNNING, 60)
    assert not math.isinf(state.deadlines.next()), "the steps alone show that something is amiss"


@pytest.mark.parametrize(
    ("fields", "left", "released"),
    [
        ({}, (30, 30, 30), 30),
        ({}, (30, 30, -1), -1),  # it would take the place of what other nodes have of all
        ({}, (30, 30, 20), -1),
        ({"replicas": 0}, (30, 30, -1), 30),
    ],
)
def test_of_earlier_generations_only_what_all_ranks_hold_is_released_and_copied(
    fields: dict[str, Any], left: tuple[int, int, int], released: int
) -> None:
    state, job = agreeing()
    job.spec = dataclasses.replace(job.spec, nnodes_max=3, **fields)
    for member, newest in zip(job.seated(), left, strict=True):
        member.kept = ((1, newest),) if newest > NO_STEP else ()
    sources = tuple(Source(f"part-{rank}", Tier.DONOR, rank, "") for rank in range(3))
    resume = Resume(Tier.DONOR, 31, sources=sources)
    job.turn(Generation("j", 2, 1, job.seats, "s", "m", resume, ""))
    releasing.begin(job)
    for rank, newest in enumerate(left):
        tell(job, rank, 31, newest, -1, state.now)
    assert {order.step for order in orders(state, job)} == ({released} - {NO_STEP})


def test_a_step_that_ranks_keep_and_one_of_them_lacks_is_voided() -> None:
    """Not at once: the others may have it, and have not said so yet."""
    state, job = agreeing()
    for rank, newest in enumerate((40, 40, 20)):
        tell(job, rank, 60, newest, -1, state.now, offers=True)
    assert orders(state, job) == []
    state.now = state.deadlines.next()
    assert orders(state, job) == [fx.Release(name, "j", 20, 40, NEVER_STEP) for name in "abc"]
    assert orders(state, job) == []


def test_that_ranks_agree_among_themselves_counts_even_if_nothing_else_is_new_in_a_status() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    job = stage.cluster.state.jobs["j"]
    number = job.generation_number
    for offers in (False, True):
        for member in job.seated():
            assert member.status is not None
            held = dataclasses.replace(
                member.status, snapshot_step=5, snapshot_generation=number, offers=offers
            )
            stage.feed(ev.MemberReport(member.node, 1, member.seen_seq + 1, held))
        releasing.from_statuses(job)
        assert job.snapshots.by_ranks is offers
