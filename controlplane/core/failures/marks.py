"""Keep a node's marks (cordon, drain, excluded devices, bad parts) in etcd, in one record with its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import NodeMarks, NodePlace
from controlplane.core.state.cluster_state import Drain, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.state.cluster_state import ClusterState


DRAINED = "drained: "
"""Beginning of the reason of a cordon that a drain has set."""
BY_DIAGNOSIS = "by diagnosis: "
"""Beginning of the reason of a drain that a finding has begun. It is in etcd, for the next leader."""


def by_diagnosis(drain: Drain | None) -> bool:
    """Whether a drain only swaps a slow node for a spare one, and is given up where that cannot be done."""
    return drain is not None and not drain.own and drain.reason.startswith(BY_DIAGNOSIS)


def of(node: Node) -> NodeMarks:
    """A node's marks as etcd keeps them. A drain that the node's own agent asked for ends with it and is
    not kept."""
    devices, drain = tuple(sorted(node.excluded.items())), node.drain
    bad = node.check.bad
    if drain is None or drain.own or drain.done:
        return NodeMarks(node.name, node.cordoned, devices, bad_parts=bad)
    return NodeMarks(node.name, node.cordoned, devices, drain.asked_by_s, drain.force, bad)


def record(state: ClusterState, node: Node) -> None:
    """Write a node's state and marks to etcd, unless they have changed again by the time of the write."""
    node.stored = None
    shown, reason, marks = node.shown, node.reason, of(node)
    effect = fx.StoreNode(node.name, shown, reason, node.address, node.domain, marks)
    state.store(f"node/{node.name}", effect, wanted=lambda: node.shown == shown and of(node) == marks)


def stand(node: Node) -> bool:
    """Whether a former leader has left the node's state and marks in etcd as they are now."""
    return node.stored == NodePlace(node.name, node.shown, node.reason, node.address, node.domain)


def word(node: Node) -> str:
    """The mark for people: drained, draining or cordoned; "": none."""
    if node.drain is not None:
        return "drained" if node.drain.done else "draining"
    return "cordoned" if node.cordoned else ""


def reason(node: Node) -> str:
    """Why it is marked, and which of its devices take no ranks, for people."""
    why = [node.drain.delay_noted or node.drain.reason] if node.drain is not None else []
    why += [node.cordoned] if node.cordoned and not why else []
    why += [f"{device} takes no ranks: {words}" for device, words in node.excluded.items()]
    return "; ".join(why)


def take(state: ClusterState, all_marks: Iterable[NodeMarks]) -> None:
    """Restore the marks that a former leader recorded. A marked node that is not known counts as lost."""
    for marks in all_marks:
        if not (marks.cordoned or marks.devices or marks.bad_parts):
            continue
        node = state.nodes.setdefault(marks.node, Node(marks.node, state="lost", reason="not seen yet"))
        node.cordoned, node.excluded = marks.cordoned, dict(marks.devices)
        node.check.bad = marks.bad_parts
        if marks.drain_by_s:
            _drain(state, node, marks)


def _drain(state: ClusterState, node: Node, marks: NodeMarks) -> None:
    """Resume a drain that people asked for. Its ranks get a node timeout, in which they can report to this
    leader."""
    by = max(marks.drain_by_s - state.wall_s, state.now + state.settings.node_timeout_s)
    reason = marks.cordoned.removeprefix(DRAINED)
    node.drain = Drain(reason, by, False, marks.drain_forced, state.now, asked_by_s=marks.drain_by_s)
    state.deadlines.sooner(("drain", node.name), state.now + state.settings.retry_s)
