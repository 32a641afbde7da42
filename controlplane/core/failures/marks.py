"""What a node is marked with (cordons, drains, excluded devices), kept in etcd beside its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import NodeMarks
from controlplane.core.state.cluster_state import Drain, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.state.cluster_state import ClusterState


DRAINED = "drained: "
"""What the reason of a cordon begins with that a drain has left."""


def of(node: Node) -> NodeMarks:
    """As etcd keeps them."""
    devices, drain = tuple(sorted(node.excluded.items())), node.drain
    if drain is None or drain.own or drain.done:
        return NodeMarks(node.name, node.cordoned, devices)
    return NodeMarks(node.name, node.cordoned, devices, drain.asked_by_s, drain.force)


def record(m: ClusterState, node: Node) -> None:
    """Have etcd hold a node's state and marks; overtaken ones are not written."""
    state, reason, marks = node.shown, node.reason, of(node)
    effect = fx.StoreNode(node.name, state, reason, node.address, node.domain, marks)
    m.store(f"node/{node.name}", effect, wanted=lambda: node.shown == state and of(node) == marks)


def word(node: Node) -> str:
    """For people: drained, draining, cordoned; "" when it has no such mark."""
    if node.drain is not None:
        return "drained" if node.drain.done else "draining"
    return "cordoned" if node.cordoned else ""


def reason(node: Node) -> str:
    """For people: why it is marked, and which of its devices take no ranks."""
    why = [node.drain.told or node.drain.reason] if node.drain is not None else []
    why += [node.cordoned] if node.cordoned and not why else []
    why += [f"{device} takes no ranks: {words}" for device, words in node.excluded.items()]
    return "; ".join(why)


def take(m: ClusterState, all_marks: Iterable[NodeMarks]) -> None:
    """What a former leader has marked holds on."""
    for marks in all_marks:
        if not (marks.cordoned or marks.devices):
            continue
        node = m.nodes.setdefault(marks.node, Node(marks.node, state="lost", reason="not seen yet"))
        node.cordoned, node.excluded = marks.cordoned, dict(marks.devices)
        if marks.drain_by_s:
            _drain(m, node, marks)


def _drain(m: ClusterState, node: Node, marks: NodeMarks) -> None:
    """People wait for it still. What sits there has time to speak to this leader first."""
    by = max(marks.drain_by_s - m.wall_s, m.now + m.settings.node_timeout_s)
    reason = marks.cordoned.removeprefix(DRAINED)
    node.drain = Drain(reason, by, False, marks.drain_forced, m.now, asked_by_s=marks.drain_by_s)
    m.deadlines.sooner(("drain", node.name), m.now + m.settings.retry_s)
