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


def heard_at(node: Node) -> float:
    """When (s) a node was last known to live: by a message of its own, or by its answer to a probe."""
    return max(node.heard_at, node.proved_at)


def brakes(m: ClusterState, node: Node) -> bool:
    """Whether the guard keeps a node whose timeout is over from being lost. Turns the guard on when too many
    nodes are silent."""
    if node.free_to_go:
        return False
    if m.brake is None:
        reason = _mass_loss(m)
        if not reason:
            return False
        m.brake = MassFailureGuard(m.now, reason)
        m.note(NoteKind.MASS_LOSS, "cluster", f"{reason}: decisions are paused, each is asked directly")
        m.ask_health()
        for each in m.nodes.values():
            if each.state != "lost" and not each.free_to_go and _silent(m, each):
                _ask(m, m.brake, each)
        m.deadlines.sooner(("brake", ""), m.now + m.settings.probe_every_s)
    _ask(m, m.brake, node)
    return True


def _ask(m: ClusterState, brake: MassFailureGuard, node: Node) -> None:
    """Have the guard wait for this node, and probe it."""
    if node.name not in brake.waits:
        brake.waits[node.name] = "" if node.peer else "it has left no address to ask it at"
        _probe(m, node)


def _probe(m: ClusterState, node: Node) -> None:
    if node.peer:
        m.emit(fx.Probe(node.peer, node.name, node.incarnation))


def _silent(m: ClusterState, node: Node) -> bool:
    """Whether it is suspect, or was not heard for half the timeout. Half: nodes that fell silent together
    do not reach their timeouts together, since each had last sent a heartbeat at another moment."""
    return node.state == "suspect" or m.now - heard_at(node) >= m.settings.node_timeout_s / 2


def _mass_loss(m: ClusterState) -> str:
    """Why this looks like a fault of our own; "" for an ordinary loss."""
    within = m.now - m.settings.node_timeout_s
    wanted = [node for node in m.nodes.values() if not node.free_to_go]
    there = [node for node in wanted if node.state != "lost" or node.lost_at > within]
    gone = sum(1 for node in there if node.state == "lost" or _silent(m, node))
    if len(there) < m.settings.mass_loss_least or gone <= m.settings.mass_loss_ratio * len(there):
        return ""
    return f"{gone} of {len(there)} nodes fell silent within {m.settings.node_timeout_s:.0f} s"


def answered(m: ClusterState, event: ev.ProbeAnswered) -> None:
    """Take the answer to a probe."""
    node = m.nodes.get(event.node)
    if node is None or node.incarnation != event.incarnation or m.brake is None:
        m.drop(NoteKind.STALE_PROBE, event.node, "nobody waits for this answer")
        return
    if event.node not in m.brake.waits:
        return
    if event.answered:
        node.proved_at = m.now
        m.note(NoteKind.PROBE_ANSWERED, node.name, "it lives, although it does not speak to us")
        spoke(m, node)
        return
    m.brake.waits[node.name] = event.reason or "no answer"
    _perhaps_over(m)


def spoke(m: ClusterState, node: Node) -> None:
    """Note that a node was heard: the guard does not wait for it any more."""
    if m.brake is not None and m.brake.waits.pop(node.name, None) is not None:
        m.deadlines.sooner(("node", node.name), heard_at(node) + m.settings.node_timeout_s)
        _perhaps_over(m)


def _perhaps_over(m: ClusterState) -> None:
    """When every answer is in, judge in this step, so that what was lost together becomes one verdict."""
    if m.brake is not None and all(m.brake.waits.values()):
        m.deadlines.sooner(("brake", ""), m.now)


def due(m: ClusterState) -> list[tuple[Node, str]]:
    """At the deadline of the guard: probe again, or end it.

    Returns the nodes to be given up, each with the answer to its probe. A node without a probe address is
    waited for until `brake_max_s`."""
    brake = m.brake
    if brake is None:
        return []
    ends = brake.since + m.settings.brake_max_s
    open_ = [name for name, why in brake.waits.items() if not why]
    addressless = [name for name in brake.waits if not m.nodes[name].peer]
    if m.now < ends and (open_ or addressless):
        for name in open_:
            _probe(m, m.nodes[name])
        m.deadlines.sooner(("brake", ""), min(ends, m.now + m.settings.probe_every_s))
        return []
    m.brake = None
    gone = [(m.nodes[name], why or "no answer to any probe") for name, why in brake.waits.items()]
    spent_s = m.now - brake.since
    m.note(
        NoteKind.MASS_LOSS_OVER,
        "cluster",
        f"after {spent_s:.1f} s {len(gone)} nodes are given up: {brake.reason}",
    )
    m.ask_health()
    return gone
