"""Drain nodes: free them of ranks because people ask for it, or because the node itself goes away.

A drain is a mark on the node; `resizing` moves the ranks at a step boundary. When its time is over, the ranks
that are still there are treated as if the node were lost. People's drains cordon the node, are refused when a
job could not go on without it (unless forced), and are in etcd, so that the next leader completes them. A
drain that the node's agent asks for (`own`: it got SIGTERM) is never refused, and ends when the node is back;
where a job cannot go on without the node, its newest state is saved meanwhile. A drain that diagnosis begins
(`swap`) only moves ranks to a spare node: it is lifted when its time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, marks, node_checks
from controlplane.core.placement import capacity, formation
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.restore import sharding
from controlplane.core.state.cluster_state import Drain
from controlplane.core.state.job import ENDED

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Placement
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job


def requested(state: ClusterState, event: ev.DrainRequested) -> None:
    """Begin a drain that people ask for, or refuse it with a note. A repetition may shorten the deadline or
    add force."""
    node = _named(state, event.node, NoteKind.DRAIN_REFUSED)
    if node is None:
        return
    lacking = "" if event.force else _lacking(state, node)
    if lacking:
        state.note(NoteKind.DRAIN_REFUSED, node.name, f"{lacking}; --force parks the job")
        return
    _begin(state, node, Drain(event.reason, state.now + event.deadline_s, False, event.force, state.now))


def _named(state: ClusterState, name: str, refused: NoteKind) -> Node | None:
    """Return the node of this name; None, with a note of the kind `refused`, when there is none."""
    node = state.nodes.get(name)
    if node is None:
        known = ", ".join(sorted(state.nodes)) or "none"
        state.note(refused, name, f"there is no node of this name; known are {known}")
    return node


def leaving(state: ClusterState, event: ev.NodeLeaving) -> None:
    """Begin the drain of a node whose agent is about to end; `deadline_s` is its grace."""
    node = state.nodes[event.node]
    _begin(state, node, Drain(event.reason, state.now + event.deadline_s, True, True, state.now))


def swap(state: ClusterState, node: Node, reason: str, within_s: float) -> None:
    """Begin the drain of a slow node to a spare one. `reason` begins with `marks.BY_DIAGNOSIS`."""
    _begin(state, node, Drain(reason, state.now + within_s, False, False, state.now))


def _begin(state: ClusterState, node: Node, drain: Drain) -> None:
    """Mark the node. Of two drains the earlier deadline holds, and force stays."""
    old = node.drain
    if old is not None and not old.done:
        drain.asked_at, drain.own = old.asked_at, old.own or drain.own
        drain.by = min(old.by, drain.by)
        drain.force = drain.force or old.force
    node.drain = drain
    if not drain.own:
        node.cordoned = f"{marks.DRAINED}{drain.reason}"
        drain.asked_by_s = state.wall_s + drain.by
    state.note(NoteKind.DRAINING, node.name, f"{drain.reason}; until {drain.by - state.now:.0f} s from now")
    marks.record(state, node)
    state.deadlines.sooner(("drain", node.name), state.now)
    state.nodes_changed()


def cordon(state: ClusterState, event: ev.CordonRequested) -> None:
    """Cordon a node, or lift its cordon; lifting it also ends a drain and readmits excluded devices."""
    node = _named(state, event.node, NoteKind.CORDON_REFUSED)
    if node is None:
        return
    node.cordoned = (event.reason or "by hand") if event.on else ""
    if not event.on:
        node.drain, node.excluded, node.deaths = None, {}, {}
        node.up_since = state.now if node.up else node.up_since
        node_checks.look(state, node)
    state.note(NoteKind.CORDONED if event.on else NoteKind.UNCORDONED, node.name, event.reason)
    marks.record(state, node)
    state.nodes_changed()


def new_life(state: ClusterState, node: Node) -> None:
    """End the drain of a node that went away by itself, because it is back with a new agent."""
    if node.drain is not None and node.drain.own:
        node.drain = None


def _lacking(state: ClusterState, node: Node) -> str:
    """Return why some job cannot go on without this node; "" when all can."""
    for job in jobs_on(state, node.name):
        reason = capacity.lacking_without(state, job, node.name)
        if reason:
            return f"job {job.name} {reason}"
    return ""


def jobs_on(state: ClusterState, name: str) -> list[Job]:
    """Return the living jobs that have seats on this node, unless all their processes there have finished."""
    return [
        job
        for job in state.jobs.values()
        if job.phase not in ENDED and not all(_is_over(job, seat) for seat in job.seating.on(name))
    ]


def _is_over(job: Job, seat: Placement) -> bool:
    return deaths.is_over(job, job.members[seat.member])


def deadline(state: ClusterState, name: str) -> None:
    """Look at a drain: release the node when it is free, force the ranks off when its time is over."""
    node = state.nodes[name]
    drain = node.drain
    if drain is None or drain.done:
        return
    if node.state == "expected":  # it has not reported to this leader which processes it has
        state.deadlines.sooner(("drain", name), state.now + state.settings.retry_s)
        return
    living = [(job, mb) for job, mb in state.members_of(name) if mb.alive and not mb.dead]
    if not jobs_on(state, name) and not living:
        _release(state, node, drain)
        return
    if drain.own:
        _save(state, node)
    if state.now >= drain.by and marks.by_diagnosis(drain):
        _lift(state, node)
        return
    if state.now >= drain.by:
        _take(state, node, drain)
    state.deadlines.sooner(
        ("drain", name), min(state.now + state.settings.retry_s, max(drain.by, state.now + 0.1))
    )


def _lift(state: ClusterState, node: Node) -> None:
    """Give up a swap whose time is over: the ranks stay."""
    node.drain, node.cordoned = None, ""
    state.note(NoteKind.UNCORDONED, node.name, "no spare node has taken its ranks in time: they stay")
    marks.record(state, node)
    state.nodes_changed()


def _save(state: ClusterState, node: Node) -> None:
    """Ask for checkpoints of the jobs that cannot go on without this node, one after another until it is
    gone."""
    for job in jobs_on(state, node.name):
        if (
            job.spec.storage
            and not job.checkpoints.savings
            and capacity.lacking_without(state, job, node.name)
        ):
            job.checkpoints.wanted_now = True
            state.touch(job)


def _release(state: ClusterState, node: Node, drain: Drain) -> None:
    drain.done, drain.in_order = True, node.up
    if drain.asked_by_s:
        marks.record(state, node)
    state.note(
        NoteKind.NODE_DRAINED,
        node.name,
        f"{drain.reason}; after {state.now - drain.asked_at:.1f} s no rank is left",
    )
    if node.up:
        state.emit(fx.Drained(node.name, drain.reason))


def _take(state: ClusterState, node: Node, drain: Drain) -> None:
    """Mark the ranks that are still on the node dead and kill them: its time is over.

    A drain by people that is not forced gets more time instead where a job has nowhere to go, or would lose
    state."""
    for job in jobs_on(state, node.name):
        here = [job.members[seat.member] for seat in job.seating.on(node.name)]
        seated = [mb for mb in here if not mb.dead and not deaths.is_over(job, mb)]
        if job.phase is JobPhase.STORING or not seated:
            continue
        waits = "" if drain.force else _waits(state, job, node)
        if waits:
            drain.by = state.now + state.settings.resize_every_s
            state.note(NoteKind.DRAIN_WAITS, node.name, f"job {job.name} {waits}")
            return
        message = f"node {node.name} is drained, and its time is over: {drain.reason}"
        state.note(
            NoteKind.DRAIN_FORCED, node.name, f"job {job.name}: its {len(seated)} ranks did not leave in time"
        )
        for member in seated:
            deaths.mark_dead(state, job, member, Failure(Cause.NODE_LOST, message))
            deaths.kill(state, job, member, message)


def _waits(state: ClusterState, job: Job, node: Node) -> str:
    """Return why a job is not forced off a node although the time is over; "" when it is."""
    if capacity.lacking_without(state, job, node.name):
        return "has nowhere to go: --force would park it"
    elsewhere = [mb.rank for mb in job.seated() if mb.node != node.name and not mb.dead]
    if job.elastic and job.restore.known_step > 0 and not sharding.whole(state, job, elsewhere):
        return "has a part of its state there and nowhere else: --force would cost it steps"
    return ""


def tidy(state: ClusterState, job: Job) -> None:
    """End a training job's processes on nodes that it has left, and free their memory.

    Only where the node is needed for something else, or the job has all the nodes it may have: otherwise the
    processes are of use when it grows back."""
    if job.phase is not JobPhase.RUNNING or job.recovery.incident is not None:
        return
    wanted = (
        frozenset(spot.node for spot in job.changes.resize.spots)
        if job.changes.resize is not None
        else frozenset()
    )
    for name in job.seatless():
        node, here = state.nodes.get(name), job.by_node[name]
        if name in wanted or node is None or not node.up:
            continue
        left = node.drain is not None or node.cordoned or capacity.taken(state, job, name) or full(job)
        if left and any(mb.alive for mb in here.values()):
            order = fx.Complete(name, job.name, True, "the job has left this node", left=True)
            state.order(job, ("leave", name), order)


def full(job: Job) -> bool:
    """Whether the job has all the nodes it may have."""
    return len(job.seat_nodes()) >= formation.usable(job.spec, job.spec.nnodes_max)
