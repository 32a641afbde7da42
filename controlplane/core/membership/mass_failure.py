"""Guard against mass failures: when too many nodes fall silent at once, doubt ourselves before them.

When more than `mass_loss_ratio` of the nodes fall silent within one node timeout, the coordinator's own
network is the likelier cause. Then no node is given up. Each silent one is probed directly, and judged
when all answers are in, or after `brake_max_s`. Nodes that gave no answer are lost together, in one step,
so that they become one verdict. Clusters of fewer than `mass_loss_least` nodes have no guard: one of three
is a third already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.findings import MassFailureGuard

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState, Node


def last_alive_at(node: Node) -> float:
    """When (s) a node was last known to live: by a message of its own, or by its answer to a probe. Later by
    the time in which this leader did not listen."""
    return max(node.last_contact_at, node.proved_at)


def withholds_loss(state: ClusterState, node: Node) -> bool:
    """Whether the guard keeps a node whose timeout is over from being lost. Turns the guard on when too many
    nodes are silent."""
    if node.free_to_go:
        return False
    if state.guard is None:
        reason = _mass_loss(state)
        if not reason:
            return False
        state.guard = MassFailureGuard(state.now, reason)
        state.note(NoteKind.MASS_LOSS, "cluster", f"{reason}: decisions are paused, each is asked directly")
        state.ask_health()
        for each in state.nodes.values():
            if each.state != "lost" and not each.free_to_go and _silent(state, each):
                _ask(state, state.guard, each)
        state.deadlines.sooner(("guard", ""), state.now + state.settings.probe_every_s)
    _ask(state, state.guard, node)
    return True


def _ask(state: ClusterState, guard: MassFailureGuard, node: Node) -> None:
    """Have the guard wait for this node, and probe it."""
    if node.name not in guard.waits:
        why = "" if node.peer else "it has left no address to ask it at"
        guard.wait(node.name, why, has_address=bool(node.peer))
        _probe(state, node)


def _probe(state: ClusterState, node: Node) -> None:
    if node.peer:
        state.emit(fx.Probe(node.peer, node.name, node.incarnation))


def _silent(state: ClusterState, node: Node) -> bool:
    """Whether it is suspect, or was not heard for half the timeout. Half: nodes that fell silent together
    do not reach their timeouts together, since each had last sent a heartbeat at another moment."""
    return node.state == "suspect" or state.now - last_alive_at(node) >= state.settings.node_timeout_s / 2


def _mass_loss(state: ClusterState) -> str:
    """Why this looks like a fault of our own; "" for an ordinary loss."""
    within = state.now - state.settings.node_timeout_s
    wanted = [node for node in state.nodes.values() if not node.free_to_go]
    there = [node for node in wanted if node.state != "lost" or node.lost_at > within]
    gone = sum(1 for node in there if node.state == "lost" or _silent(state, node))
    if len(there) < state.settings.mass_loss_least or gone <= state.settings.mass_loss_ratio * len(there):
        return ""
    return f"{gone} of {len(there)} nodes fell silent within {state.settings.node_timeout_s:.0f} s"


def answered(state: ClusterState, event: ev.ProbeAnswered) -> None:
    """Take the answer to a probe."""
    node = state.nodes.get(event.node)
    if node is None or node.incarnation != event.incarnation or state.guard is None:
        state.drop(NoteKind.STALE_PROBE, event.node, "nobody waits for this answer")
        return
    if event.node not in state.guard.waits:
        return
    if event.answered:
        node.proved_at = state.now
        state.note(NoteKind.PROBE_ANSWERED, node.name, "it lives, although it does not speak to us")
        spoke(state, node)
        return
    state.guard.wait(node.name, event.reason or "no answer", has_address=bool(node.peer))
    _perhaps_over(state)


def excuse(state: ClusterState, spent_s: float) -> None:
    """Wait longer for answers: this leader has not listened for so long. Longer by `brake_max_s` at most, or
    one that is away again and again would give up nobody."""
    guard = state.guard
    if guard is not None:
        meanwhile_s = min(spent_s, state.now - guard.since)
        guard.excused_s = min(guard.excused_s + meanwhile_s, state.settings.brake_max_s)


def spoke(state: ClusterState, node: Node) -> None:
    """Note that a node was heard: the guard does not wait for it any more."""
    if state.guard is not None and state.guard.forget(node.name):
        state.deadlines.sooner(("node", node.name), last_alive_at(node) + state.settings.node_timeout_s)
        _perhaps_over(state)


def _perhaps_over(state: ClusterState) -> None:
    """When every answer is in, judge in this step, so that what was lost together becomes one verdict."""
    if state.guard is not None and not state.guard.unanswered and not state.guard.addressless:
        state.deadlines.sooner(("guard", ""), state.now)


def due(state: ClusterState) -> list[tuple[Node, str]]:
    """At the deadline of the guard: probe again, or end it.

    Returns the nodes to be given up, each with the answer to its probe. A node without a probe address is
    waited for until `brake_max_s`, not counting the time in which this leader did not listen."""
    guard = state.guard
    if guard is None:
        return []
    ends = guard.since + state.settings.brake_max_s + guard.excused_s
    if state.now < ends and (guard.unanswered or guard.addressless):
        for name in guard.unanswered:
            _probe(state, state.nodes[name])
        state.deadlines.sooner(("guard", ""), min(ends, state.now + state.settings.probe_every_s))
        return []
    state.guard = None
    gone = [(state.nodes[name], why or "no answer to any probe") for name, why in guard.waits.items()]
    spent_s = state.now - guard.since
    state.note(
        NoteKind.MASS_LOSS_OVER,
        "cluster",
        f"after {spent_s:.1f} s {len(gone)} nodes are given up: {guard.reason}",
    )
    state.ask_health()
    return gone
