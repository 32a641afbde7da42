"""Take heartbeats in which only steps have moved, at a small part of the cost of a whole one.

In a large cluster nearly all heartbeats are such, and hardly one has a consequence. As long as nothing but
the steps of ranks that train has moved (`StepWalk`), each step is noted at its member, whose status is made
only when somebody reads it. Everything else is taken as the whole heartbeat that the short one stands for, so
what follows from it is decided in one place (`members.observe`); what is noted here is what it would note."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing
from controlplane.core.membership import fast_path, members
from controlplane.core.records import step_beats
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.state import waiting
from controlplane.core.state.cluster_state import StepWalk

if TYPE_CHECKING:
    from controlplane.core.records.events import NodeBeat, StepBeat
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.records.step_beats import Steps
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def walked(state: ClusterState, node: Node, steps: list[Steps]) -> bool:
    """Note the members' new steps, in the order of the node's last whole heartbeat (`node.whole`).

    Returns whether that was all there is to it; if not, nothing has been noted."""
    assert node.whole is not None
    walk = node.walk or _begin(state, node, node.whole)
    if walk is None or not _still_valid(state, node, walk, steps):
        node.walk = None
        return False
    node.walk = walk
    snapped, newest = [], NO_STEP
    for (member, _), held, now in zip(walk.members, walk.held, steps, strict=True):
        member.seen_seq, member.seen_at = node.seq, state.now
        if held is None:
            if not member.adopted or member.rank >= 0:
                members.see_step(state, walk.job, member.phase, now[0])
            continue
        if now[0] > newest:
            newest = now[0]
            members.see_step(state, walk.job, MemberPhase.RUNNING, newest)
        if _moved(walk.job, member, held, now):
            snapped.append(member)
    if snapped:
        _look(state, walk.job, snapped)
    return True


def _begin(state: ClusterState, node: Node, whole: NodeBeat) -> StepWalk | None:
    """The walk over the members of this heartbeat; None where more than steps may matter."""
    jobs = {status.job for status in whole.members}
    job = state.jobs.get(jobs.pop()) if len(jobs) == 1 else None
    if job is None or job.generation is None or not job.generation.store:
        return None
    found = []
    for status in whole.members:
        member = job.members.get(status.member)
        if member is None or member.node != node.name or not _has_told(member, status):
            return None
        found.append((member, member.words))
    held = [_held_step(job, member) for member, _ in found]
    names = frozenset(status.member for status in whole.members)
    return StepWalk(job, job.generation, job.seating.version, found, held, names)


def _has_told(member: Member, status: MemberStatus) -> bool:
    """Whether the newest that is known of a member is this status, apart from steps."""
    told = member.told
    return told is status or (
        told is not None and step_beats.moved(status, step_beats.steps_of(told)) == told
    )


def _held_step(job: Job, member: Member) -> int | None:
    """The step that a rank says it holds, if it trains in the generation and nothing in its status but steps
    matters; else None."""
    told, number = member.told, job.generation_number
    if (
        told is None
        or told.phase is not MemberPhase.RUNNING
        or told.former_step > NO_STEP
        or not waiting.in_seat(job, member)
        or member.generation != number
        or (told.snapshot_step > NO_STEP and told.snapshot_generation != number)
        or (told.shard and job.restore.shards.get(member.rank) != told.shard)
    ):
        return None
    return told.held_step


def _still_valid(state: ClusterState, node: Node, walk: StepWalk, steps: list[Steps]) -> bool:
    """Whether all is as it was when the walk began, apart from steps."""
    job = walk.job
    if (
        job.phase is not JobPhase.RUNNING
        or job.generation is not walk.generation
        or job.seating.version != walk.seating_version
        or job.recovery.incident is not None
        or state.jobs.get(job.name) is not job
        or not waiting.quiet(job)
    ):
        return False
    for (member, words), held, now in zip(walk.members, walk.held, steps, strict=True):
        if member.words != words or member.failure is not None or (held is None and member.steps != now):
            return False
    if len(state.hosts[node.name]) == 1:
        return job.by_node[node.name].keys() <= walk.names
    return all(member.name in walk.names for _, member in state.members_of(node.name))


def _moved(job: Job, member: Member, held: int, now: Steps) -> bool:
    """Note the new steps of a rank, whose status says that it holds step `held`. Returns whether its
    snapshots have moved."""
    before = member.steps
    member.move(now)
    if before[1:] == now[1:]:
        return False
    assert member.told is not None
    member.kept = members.slots(member.told, *now[1:])
    job.restore.known_step = max(job.restore.known_step, held, now[1])
    job.unread[member.name] = member
    return True


def _look(state: ClusterState, job: Job, snapped: list[Member]) -> None:
    """Have the job look at the new snapshots of these members, if it has not done so just now."""
    if fast_path.looked(state, job):
        return
    for member in snapped:
        releasing.from_status(job, member)
    if not releasing.all_uncopied(job, snapped):
        job.copied_at = state.now
        state.touch(job)


def expanded(node: Node, beat: StepBeat, steps: list[Steps]) -> NodeBeat:
    """The whole heartbeat that a short one stands for. It takes the place of the one that the short one
    names, whose statuses may be older than what the members have told since."""
    assert node.whole is not None
    whole = step_beats.whole(beat, node.whole, steps)
    node.whole = dataclasses.replace(whole, seq=beat.like)
    return whole
