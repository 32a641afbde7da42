"""Track nodes: they join, send heartbeats, break, and are lost.

Only the agent with the node's current incarnation is listened to. A broken stream makes a node suspect;
only silence for `node_timeout_s` makes it lost, and `mass_failure` may hold that up. A new stream means
that orders sent on the old one may never have arrived, so all of them are sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane import timeout_constraints
from controlplane.core.elasticity import draining
from controlplane.core.failures import deaths, eligibility, marks, node_checks, quarantine
from controlplane.core.membership import listening, mass_failure, members, replacement, short_beats
from controlplane.core.records import effects as fx
from controlplane.core.records import step_beats
from controlplane.core.records.model import NO_RANK, Cause, Failure
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import AHEAD_MAX_S
from controlplane.core.restore import keepers
from controlplane.core.state.cluster_state import Node

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


NS = 1e9


def joined(state: ClusterState, event: ev.NodeJoined) -> None:
    """Accept an agent's hello, or refuse it with the reason."""
    node = state.nodes.setdefault(event.node, Node(event.node))
    refusal = _refusal(state, node, event)
    if refusal:
        state.counts["refused_hello"] = state.counts.get("refused_hello", 0) + 1
        state.emit(fx.Refuse(event.node, event.incarnation, *refusal))
        return
    new_launcher = node.launcher not in ("", event.launcher)
    if event.incarnation != node.incarnation:
        node.seq = node.top = -1
        for _, member in state.members_of(node.name):
            member.seen_seq = -1
    was, away_s = node.state, state.now - node.last_contact_at
    again = event.incarnation != node.incarnation and node.free_to_go
    planned = node.replaced or node.drain is not None  # it was expected to go away
    if new_launcher:
        node.listening.given_up = ()  # its processes are gone
    else:
        listening.spoke(state, node)
    node.listening.process_timeout_s = event.process_timeout_s
    node.incarnation, node.launcher, node.address = event.incarnation, event.launcher, event.address
    node.slots, node.port, node.last_contact_at = event.slots, event.port, state.now
    node.domain, node.peer = event.domain or event.node, event.peer
    keepers.keep(state, node, event.copies)
    node.version, node.jobs = event.holdfast_version, event.jobs
    node.whole = node.walk = None
    node.bad_devices = {}  # its agent reports them after its hello
    if was != "up" or new_launcher:
        node.up_since = state.now
    if new_launcher or again:  # `again`: it was drained and left, and is back with the same launcher
        draining.new_life(state, node)
    if new_launcher:
        replacement.new_life(state, node)
    node.state, node.reason = "up", ""
    _back(state, node, was)
    state.emit(fx.Admit(node.name, node.incarnation, state.term))
    if (was != "up" or new_launcher) and not marks.stand(node):
        marks.record(state, node)
    _listen(state, node)
    _forget_orders(state, node)
    missing = Failure(
        Cause.NODE_RESTARTED,
        f"node {node.name} came back without it",
        age_s=away_s if was == "suspect" else 0.0,
    )
    if new_launcher and was != "lost" and not planned:
        quarantine.charge(state, node, Cause.NODE_RESTARTED, "")
    _whole_view(state, node, event, node.top, missing)
    node_checks.joined(state, node, new_life=new_launcher)
    state.nodes_changed()


def _back(state: ClusterState, node: Node, was: str) -> None:
    """A node is up again or for the first time: end the guard's wait for it, and count a return if it was
    suspect or lost."""
    quarantine.take(state, node)
    mass_failure.spoke(state, node)
    if was in ("suspect", "lost"):
        eligibility.returned(state, node)
        state.ask_health()


def _refusal(state: ClusterState, node: Node, event: ev.NodeJoined) -> tuple[str, bool] | None:
    """Why a hello is refused, and whether a later one may be accepted; None: it is accepted.

    A node that came back before its end was noticed, or with its clock set back, looks like a second node
    of its name. That passes, so it may try again."""
    other = node.launcher not in ("", event.launcher)
    if node.up and other and state.now - node.last_contact_at < state.settings.conflict_s:
        return (
            f"node {node.name} is connected already from {node.address} with another launcher: "
            "give this agent a name of its own with --node",
            True,
        )
    reason = timeout_constraints.mismatch(event, state.settings) or _of_the_future(state, event)
    if reason:
        return reason, False
    if event.incarnation < node.incarnation and node.state != "lost":
        return (
            f"incarnation {event.incarnation} of node {node.name} is older than {node.incarnation}: "
            "a newer agent of this node was here; end this one",
            not node.up,
        )
    return None


def _of_the_future(state: ClusterState, event: ev.NodeJoined) -> str:
    """Why an incarnation is too far in the future to be accepted; "": it is not."""
    ahead_s = event.incarnation / NS - state.wall
    if not state.wall_s or ahead_s <= AHEAD_MAX_S:
        return ""
    return (
        f"incarnation {event.incarnation} of node {event.node} lies {ahead_s / 3600:.0f} h ahead of this "
        f"coordinator's clock: set the clocks of both right, and start the agent again"
    )


def beat(state: ClusterState, event: ev.NodeBeat) -> None:
    """Take a heartbeat, with the agent's whole view of its members."""
    node = _newest_beat(state, event)
    if node is None:
        return
    node.seq, node.port = event.seq, event.port
    keepers.keep(state, node, event.copies)
    node.top = max(node.top, event.seq)
    node.part_read, had_strays = bool(event.unread), eligibility.strays(state, node)
    node.whole, node.walk = None if node.part_read else event, None
    _whole_view(state, node, event, event.seq)
    if had_strays and not eligibility.strays(state, node):
        state.ask_health()
        state.nodes_changed()


def _newest_beat(state: ClusterState, event: ev.NodeBeat | ev.StepBeat) -> Node | None:
    """The node, if this heartbeat is of its current agent and newer than all before; else it is dropped."""
    node = _contact(state, event.node, event.incarnation, "beat")
    if node is not None and event.seq <= node.seq:
        state.drop(NoteKind.STALE_BEAT, node.name, f"sequence {event.seq} is not after {node.seq}")
        return None
    return node


def step_beat(state: ClusterState, event: ev.StepBeat) -> None:
    """Take a heartbeat in which only steps have moved since a whole one of this stream.

    An agent whose whole one is not known here has to come anew: nothing that it says would be understood."""
    node = _newest_beat(state, event)
    if node is None:
        return
    steps = step_beats.rows(event, node.whole)
    if steps is None:
        why = f"heartbeat {event.like}, which its heartbeat {event.seq} is like, is not known here"
        state.drop(NoteKind.STALE_BEAT, node.name, why)
        if not node.part_read:
            state.emit(fx.Refuse(node.name, event.incarnation, f"{why}: come anew", retry=True))
        return
    node.seq, node.top = event.seq, max(node.top, event.seq)
    if not short_beats.walked(state, node, steps):
        _whole_view(state, node, short_beats.expanded(node, event, steps), event.seq)


def heard(state: ClusterState, event: ev.NodesHeard) -> None:
    """Take heartbeats that bring nothing new."""
    for name, incarnation in event.nodes:
        node = state.nodes.get(name)
        if node is not None and node.incarnation == incarnation and node.state == "up":
            listening.spoke(state, node)
            node.last_contact_at = state.now
            mass_failure.spoke(state, node)
        else:
            _contact(state, name, incarnation, "beat")


def unheard(state: ClusterState, event: ev.LeaderDeaf) -> None:
    """Do not count as silence the time in which this leader did not listen.

    A leader that is away again and again hears the living in between: so a silence is excused by one timeout
    at most, unless the node waits to be greeted."""
    if not event.newcomers:
        mass_failure.excuse(state, event.spent_s)
    for node in state.nodes.values():
        if node.state != "lost" and not (event.newcomers and node.up):
            alive_at = mass_failure.last_alive_at(node)
            until = min(state.now, alive_at + event.spent_s)
            if not event.newcomers:
                until = min(until, node.last_contact_at + state.settings.node_timeout_s)
            node.proved_at = max(alive_at, until)


def report(state: ClusterState, event: ev.MemberReport) -> None:
    """Take the new status of one member."""
    node = _contact(state, event.node, event.incarnation, "report")
    if node is not None:
        node.top = max(node.top, event.seq)
        members.observe(state, node.name, event.status, event.seq)


def broken(state: ClusterState, event: ev.NodeBroken) -> None:
    """A stream broke: the node becomes suspect, and is lost when its timeout is over."""
    node = state.nodes.get(event.node)
    if node is None or event.incarnation != node.incarnation or not node.up:
        state.drop(NoteKind.STALE_BROKEN, event.node, f"incarnation {event.incarnation} has no stream here")
        return
    node.state, node.reason = "suspect", event.reason
    state.note(NoteKind.NODE_SUSPECTED, node.name, event.reason)
    state.deadlines.sooner(("node", node.name), node.last_contact_at + state.settings.node_timeout_s)
    state.nodes_changed()


def device(state: ClusterState, event: ev.DeviceReport) -> None:
    """A device became unhealthy, or healthy again: record it, for placement and for people."""
    node = _contact(state, event.node, event.incarnation, "device report")
    if node is None:
        return
    if event.healthy:
        node.bad_devices.pop(event.device, None)
    else:
        node.bad_devices[event.device] = event.reason
    state.ask_health()
    kind = NoteKind.DEVICE_HEALTHY if event.healthy else NoteKind.DEVICE_UNHEALTHY
    state.note(kind, f"{node.name}/{event.device}", event.reason)
    state.nodes_changed()


def expect(state: ClusterState, name: str) -> None:
    """Expect a node that etcd names: it has one timeout to report before anything is judged."""
    node = state.nodes.setdefault(name, Node(name))
    node.last_contact_at = state.now
    _listen(state, node)


def expect_all(state: ClusterState, event: ev.Elected) -> None:
    """Expect every node that was up, and remember how etcd has them."""
    for name in sorted(event.nodes):
        expect(state, name)
    for place in event.places:
        if (node := state.nodes.get(place.node)) is not None:
            node.stored = place


def deadline(state: ClusterState, name: str) -> None:
    """At the deadline of a node: if it was silent for a whole timeout, it is lost, unless the mass-failure
    guard keeps it."""
    node = state.nodes[name]
    if node.state == "lost":
        return
    if state.now < mass_failure.last_alive_at(node) + state.settings.node_timeout_s:
        _listen(state, node)
    elif not mass_failure.withholds_loss(state, node):
        _lose(state, node, "")


def guard_due(state: ClusterState, _name: str) -> None:
    """At the deadline of the mass-failure guard: lose the nodes that it gives up, all in one step."""
    gone = mass_failure.due(state)
    for node, answer in gone:
        _lose(state, node, answer)


def _lose(state: ClusterState, node: Node, answer: str) -> None:
    name, silent_s = node.name, state.now - node.last_contact_at
    why = node.reason or f"silent for {silent_s:.0f} s"
    node.state, node.lost_at = "lost", state.now
    node.reason = f"{why}; asked directly: {answer}" if answer else why
    state.note(NoteKind.NODE_LOST, name, f"not heard of for {silent_s:.1f} s")
    state.ask_health()
    # A node lost in a mass failure, or after its drain, is not at fault itself.
    if not (answer or node.free_to_go):
        quarantine.charge(state, node, Cause.NODE_LOST, "")
    marks.record(state, node)
    hit: dict[str, None] = {}
    for job, member in state.members_of(name):
        if not member.dead and not deaths.is_over(job, member):
            hit[job.name] = None
            message = f"node {name} is lost: {node.reason}"
            deaths.mark_dead(state, job, member, Failure(Cause.NODE_LOST, message, age_s=silent_s))
    node.listening.given_up = tuple(hit)
    state.nodes_changed()


def known(state: ClusterState, name: str, incarnation: int, what: str) -> bool:
    """Whether a message is from the node's current agent. Otherwise it is dropped."""
    return _contact(state, name, incarnation, what) is not None


def _contact(state: ClusterState, name: str, incarnation: int, what: str) -> Node | None:
    """The node, if this incarnation is its current agent: it lives, and is up from now on. Else None, and
    the message is dropped."""
    node = state.nodes.get(name)
    if node is None or node.incarnation != incarnation or node.state == "expected":
        state.drop(
            NoteKind.STALE_INCARNATION,
            name,
            f"a {what} of incarnation {incarnation}, which is not the one here",
        )
        if node is None:  # its record was deleted while its stream was up: it must say hello again
            state.emit(fx.Refuse(name, incarnation, f"node {name} was given up: come anew", retry=True))
        return None
    listening.spoke(state, node)
    node.last_contact_at = state.now
    if not node.up:
        was, node.state, node.reason, node.up_since = node.state, "up", "", state.now
        _back(state, node, was)
        if was == "lost":  # etcd has it as lost, and the next leader would not wait for it
            marks.record(state, node)
        state.note(NoteKind.NODE_HEARD_AGAIN, name, "its agent speaks")
        _listen(state, node)
        _forget_orders(state, node)
        node_checks.look(state, node)
        state.nodes_changed()
    else:
        mass_failure.spoke(state, node)
    return node


def _listen(state: ClusterState, node: Node) -> None:
    """Set the node's deadline."""
    state.deadlines.sooner(
        ("node", node.name), mass_failure.last_alive_at(node) + state.settings.node_timeout_s
    )


def _forget_orders(state: ClusterState, node: Node) -> None:
    """The node's stream is new: what was sent on the old one may never have arrived, so all of it is sent
    again."""
    for _, member in state.members_of(node.name):
        member.stop_by = state.now + state.settings.stop_timeout_s
    state.streams += 1
    for job in state.jobs.values():
        job.replicas.replicated.pop(node.name, None)
        job.sent.forget(node.name)
        job.sent_on_stream.forget(node.name)


def _whole_view(
    state: ClusterState,
    node: Node,
    event: ev.NodeJoined | ev.NodeBeat,
    seq: int,
    missing: Failure | None = None,
) -> None:
    """Take all statuses of a hello or heartbeat. Members of the node that it does not list are missing.

    Members whose status this version cannot read (`unread`) count as listed: they live."""
    listed = {status.member for status in event.members}.union(event.unread)
    for status in event.members:
        members.observe(state, node.name, status, seq)
    for job, member in state.members_of(node.name):
        if member.name not in listed:
            gone = missing or Failure(Cause.EXITED, f"the agent of {node.name} lists it no more")
            _missing(state, job, member, seq, gone)


def _missing(state: ClusterState, job: Job, member: Member, seq: int, failure: Failure) -> None:
    """Decide about a member that its agent does not list: its launch order may still be under way, or it has
    ended as it should, or it is dead."""
    if member.launch is not None and member.status is None:
        return
    if member.seen_seq > seq:
        return
    if deaths.is_over(job, member):
        member.kept = ()  # its arena is gone
        return
    if member.status is None and member.rank == NO_RANK:  # it was of a former run of the job, and has ended
        members.forget(state, job, member)
        return
    if not member.dead and not (member.done and job.ended):
        deaths.mark_dead(state, job, member, failure)
    members.forget(state, job, member)
