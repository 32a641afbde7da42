"""Drain nodes: free them of ranks because people ask for it, or because the node itself goes away.

A drain is a mark on the node; `resizing` moves the ranks at a step boundary. When its time is over, the ranks
that are still there are treated as if the node were lost. People's drains cordon the node, are refused when a
job could not go on without it (unless forced), and are in etcd, so that the next leader completes them. A
drain that the node's agent asks for (`own`: it got SIGTERM) is never refused, and ends when the node is back;
where a job cannot go on without the node, its newest state is saved meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, marks
from controlplane.core.placement import capacity, formation
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.restore import state_sources
from controlplane.core.state.cluster_state import Drain
from controlplane.core.state.job import ENDED

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Placement
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job


def requested(m: ClusterState, event: ev.DrainRequested) -> None:
    """Begin a drain that people ask for, or refuse it with a note. A repetition may shorten the deadline or
    add force."""
    node = _named(m, event.node, NoteKind.DRAIN_REFUSED)
    if node is None:
        return
    lacking = "" if event.force else _lacking(m, node)
    if lacking:
        m.note(NoteKind.DRAIN_REFUSED, node.name, f"{lacking}; --force parks the job")
        return
    _begin(m, node, Drain(event.reason, m.now + event.deadline_s, False, event.force, m.now))


def _named(m: ClusterState, name: str, refused: NoteKind) -> Node | None:
    """Return the node of this name; None, with a note of the kind `refused`, when there is none."""
    node = m.nodes.get(name)
    if node is None:
        known = ", ".join(sorted(m.nodes)) or "none"
        m.note(refused, name, f"there is no node of this name; known are {known}")
    return node


def leaving(m: ClusterState, event: ev.NodeLeaving) -> None:
    """Begin the drain of a node whose agent is about to end; `deadline_s` is its grace."""
    node = m.nodes[event.node]
    _begin(m, node, Drain(event.reason, m.now + event.deadline_s, True, True, m.now))


def _begin(m: ClusterState, node: Node, drain: Drain) -> None:
    """Mark the node. Of two drains the earlier deadline holds, and force stays."""
    old = node.drain
    if old is not None and not old.done:
        drain.asked_at, drain.own = old.asked_at, old.own or drain.own
        drain.by = min(old.by, drain.by)
        drain.force = drain.force or old.force
    node.drain = drain
    if not drain.own:
        node.cordoned = f"{marks.DRAINED}{drain.reason}"
        drain.asked_by_s = m.wall_s + drain.by
    m.note(NoteKind.DRAINING, node.name, f"{drain.reason}; until {drain.by - m.now:.0f} s from now")
    marks.record(m, node)
    m.deadlines.sooner(("drain", node.name), m.now)
    m.nodes_changed()


def cordon(m: ClusterState, event: ev.CordonRequested) -> None:
    """Cordon a node, or lift its cordon; lifting it also ends a drain and readmits excluded devices."""
    node = _named(m, event.node, NoteKind.CORDON_REFUSED)
    if node is None:
        return
    node.cordoned = (event.reason or "by hand") if event.on else ""
    if not event.on:
        node.drain, node.excluded, node.deaths = None, {}, {}
        node.up_since = m.now if node.up else node.up_since
    m.note(NoteKind.CORDONED if event.on else NoteKind.UNCORDONED, node.name, event.reason)
    marks.record(m, node)
    m.nodes_changed()


def new_life(m: ClusterState, node: Node) -> None:
    """End the drain of a node that went away by itself, because it is back with a new agent."""
    if node.drain is not None and node.drain.own:
        node.drain = None


def _lacking(m: ClusterState, node: Node) -> str:
    """Return why some job cannot go on without this node; "" when all can."""
    for job in jobs_on(m, node.name):
        reason = capacity.lacking_without(m, job, node.name)
        if reason:
            return f"job {job.name} {reason}"
    return ""


def jobs_on(m: ClusterState, name: str) -> list[Job]:
    """Return the living jobs that have seats on this node, unless all their processes there have finished."""
    return [
        job
        for job in m.jobs.values()
        if job.phase not in ENDED and not all(_is_over(job, seat) for seat in job.seating.on(name))
    ]


def _is_over(job: Job, seat: Placement) -> bool:
    return deaths.is_over(job, job.members[seat.member])


def deadline(m: ClusterState, name: str) -> None:
    """Look at a drain: release the node when it is free, force the ranks off when its time is over."""
    node = m.nodes[name]
    drain = node.drain
    if drain is None or drain.done:
        return
    if node.state == "expected":  # it has not reported to this leader which processes it has
        m.deadlines.sooner(("drain", name), m.now + m.settings.retry_s)
        return
    living = [(job, mb) for job, mb in m.members_of(name) if mb.alive and not mb.dead]
    if not jobs_on(m, name) and not living:
        _release(m, node, drain)
        return
    if drain.own:
        _save(m, node)
    if m.now >= drain.by:
        _take(m, node, drain)
    m.deadlines.sooner(("drain", name), min(m.now + m.settings.retry_s, max(drain.by, m.now + 0.1)))


def _save(m: ClusterState, node: Node) -> None:
    """Ask for checkpoints of the jobs that cannot go on without this node, one after another until it is
    gone."""
    for job in jobs_on(m, node.name):
        if job.spec.storage and not job.checkpoints.savings and capacity.lacking_without(m, job, node.name):
            job.checkpoints.wanted_now = True
            m.touch(job)


def _release(m: ClusterState, node: Node, drain: Drain) -> None:
    drain.done, drain.in_order = True, node.up
    if drain.asked_by_s:
        marks.record(m, node)
    m.note(
        NoteKind.NODE_DRAINED,
        node.name,
        f"{drain.reason}; after {m.now - drain.asked_at:.1f} s no rank is left",
    )
    if node.up:
        m.emit(fx.Drained(node.name, drain.reason))


def _take(m: ClusterState, node: Node, drain: Drain) -> None:
    """Mark the ranks that are still on the node dead and kill them: its time is over.

    A drain by people that is not forced gets more time instead where a job has nowhere to go, or would lose
    state."""
    for job in jobs_on(m, node.name):
        here = [job.members[seat.member] for seat in job.seating.on(node.name)]
        seated = [mb for mb in here if not mb.dead and not deaths.is_over(job, mb)]
        if job.phase is JobPhase.STORING or not seated:
            continue
        waits = "" if drain.force else _waits(m, job, node)
        if waits:
            drain.by = m.now + m.settings.resize_every_s
            m.note(NoteKind.DRAIN_WAITS, node.name, f"job {job.name} {waits}")
            return
        message = f"node {node.name} is drained, and its time is over: {drain.reason}"
        m.note(
            NoteKind.DRAIN_FORCED, node.name, f"job {job.name}: its {len(seated)} ranks did not leave in time"
        )
        for member in seated:
            deaths.mark_dead(m, job, member, Failure(Cause.NODE_LOST, message))
            deaths.kill(m, job, member, message)


def _waits(m: ClusterState, job: Job, node: Node) -> str:
    """Return why a job is not forced off a node although the time is over; "" when it is."""
    if capacity.lacking_without(m, job, node.name):
        return "has nowhere to go: --force would park it"
    elsewhere = [mb.rank for mb in job.seated() if mb.node != node.name and not mb.dead]
    if job.elastic and job.restore.known_step > 0 and not state_sources.whole(m, job, elsewhere):
        return "has a part of its state there and nowhere else: --force would cost it steps"
    return ""


def tidy(m: ClusterState, job: Job) -> None:
    """End a training job's processes on nodes that it has left, and free their memory.

    Only where the node is needed for something else, or the job has all the nodes it may have: otherwise the
    processes are of use when it grows back."""
    if job.phase is not JobPhase.RUNNING or job.recovery.incident is not None:
        return
    wanted = (
        frozenset(spot.node for spot in job.places.resize.spots)
        if job.places.resize is not None
        else frozenset()
    )
    for name in job.seatless():
        node, here = m.nodes.get(name), job.by_node[name]
        if name in wanted or node is None or not node.up:
            continue
        left = node.drain is not None or node.cordoned or capacity.taken(m, job, name) or full(job)
        if left and any(mb.alive for mb in here.values()):
            order = fx.Complete(name, job.name, True, "the job has left this node", left=True)
            m.order(job, ("leave", name), order)


def full(job: Job) -> bool:
    """Whether the job has all the nodes it may have."""
    return len(job.seat_nodes()) >= formation.usable(job.spec, job.spec.nnodes_max)
