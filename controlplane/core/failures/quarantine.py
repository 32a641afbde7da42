"""Quarantine faulty nodes: weigh the failures that begin on each node, and let the score decay.

A node whose score exceeds `lemon_score` is the last choice for ranks and spares for a while. The history
is in etcd, with Unix times, so that it outlives leaders and restarts. Only failures that began on a node
count, not those that followed elsewhere."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import blame, verdicts
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, LemonRecord
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.evidence import Evidence
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.cluster_state import ClusterState, Node

WEIGHTS: dict[Cause, float] = {
    Cause.SIGNALED: 0.5,
    Cause.EXITED: 0.2,
    Cause.RAISED: 0.0,  # the script's own failure, unless its text points to a device
    Cause.SILENT: 1.0,
    Cause.STUCK: 0.5,
    Cause.DEVICE: 2.0,
    Cause.NODE_LOST: 1.0,
    Cause.NODE_RESTARTED: 0.7,
    Cause.BROKEN: 0.0,  # suspects no node in particular
    Cause.LAUNCH_FAILED: 0.5,
    Cause.CUT: 1.0,
    Cause.HUNG: 0.3,  # mostly the script's own failure
    Cause.FAULT: 0.0,
    Cause.RESIZED: 0.0,
}
"""How much one failure of each cause says about its node; 0: nothing."""

HARDWARE_WEIGHT = 1.0
"""The weight of an exception or exit whose text points to a device."""
FORGOTTEN = 0.01
"""A score below this counts as 0."""


def decayed(record: LemonRecord | None, wall_s: float, half_life_s: float) -> float:
    """The score of a node at `wall_s` (Unix time): halved with each half-life since it was computed."""
    if record is None:
        return 0.0
    score: float = record.score * 2.0 ** (-max(0.0, wall_s - record.at_s) / half_life_s)
    return score if score >= FORGOTTEN else 0.0


def quarantined(record: LemonRecord | None, wall_s: float) -> bool:
    """Whether a node is quarantined at `wall_s`."""
    return record is not None and wall_s < record.until_s


def weight(cause: Cause, message: str) -> float:
    """The weight of one failure with this text."""
    if blame.of_hardware(cause, message):
        return HARDWARE_WEIGHT
    if cause is Cause.LAUNCH_FAILED and message.startswith(blame.NOT_ALLOWED):
        return 0.0
    return WEIGHTS[cause]


def charged(record: LemonRecord, cause: Cause, weighs: float, wall_s: float, s: CoreSettings) -> LemonRecord:
    """The history with one more failure; with a quarantine from now on when the score exceeds the limit."""
    score = decayed(record, wall_s, s.lemon_half_life_s) + weighs
    causes = dict(record.causes)
    causes[cause.value] = causes.get(cause.value, 0) + 1
    until_s = record.until_s
    reason = record.reason if wall_s < until_s else ""
    if score > s.lemon_score:
        until_s = wall_s + s.quarantine_s
        what = ", ".join(f"{times} x {name}" for name, times in causes.items())
        reason = f"quarantined, score {score:.1f} is over {s.lemon_score:g}: {what}"
    return LemonRecord(record.node, round(score, 4), wall_s, until_s, reason, tuple(causes.items()))


def charge(m: ClusterState, node: Node, cause: Cause, message: str) -> None:
    """Count a failure that began on this node."""
    weighs = weight(cause, message)
    if not weighs:
        return
    before = quarantined(node.lemon, m.wall)
    record = node.lemon or LemonRecord(node.name, 0.0, m.wall)
    _put(m, node, charged(record, cause, weighs, m.wall, m.settings))
    if not before and quarantined(node.lemon, m.wall) and node.lemon is not None:
        m.note(NoteKind.QUARANTINED, node.name, node.lemon.reason)
        m.ask_health()


def charge_judged(m: ClusterState, fresh: Sequence[Evidence]) -> None:
    """Count the judged failure against the node where it began. Losses of whole nodes are counted where
    they are detected."""
    first = verdicts.root(fresh)
    node = m.nodes.get(first.node)
    if node is not None and first.failure.cause not in verdicts.NODE_CAUSES:
        charge(m, node, first.failure.cause, f"{first.failure.exception} {first.failure.message}")


def adopt(m: ClusterState, records: Sequence[LemonRecord]) -> None:
    """Take over the histories that etcd holds. Nodes that are not known yet get theirs when they join."""
    for record in records:
        m.histories[record.node] = record
        if record.node in m.nodes:
            take(m, m.nodes[record.node])


def take(m: ClusterState, node: Node) -> None:
    """Give a node its history, and set the deadline of its quarantine."""
    node.lemon = node.lemon or m.histories.get(node.name)
    if node.lemon is not None and quarantined(node.lemon, m.wall):
        m.deadlines.sooner(("lemon", node.name), node.lemon.until_s - m.wall_s)


def expired(m: ClusterState, name: str) -> None:
    """At the deadline of a quarantine: end it. The decayed score stays."""
    node = m.nodes[name]
    if node.lemon is None or not node.lemon.until_s:
        return
    if quarantined(node.lemon, m.wall):
        take(m, node)
        return
    score = decayed(node.lemon, m.wall, m.settings.lemon_half_life_s)
    _put(m, node, dataclasses.replace(node.lemon, score=score, at_s=m.wall, until_s=0.0, reason=""))
    _free(m, node, "its quarantine is over")


def release(m: ClusterState, event: ev.QuarantineReleased) -> None:
    """A person declares the node sound: delete its history, end its quarantine and its hold-down."""
    node = m.nodes.get(event.node)
    if node is None or node.lemon is None:
        m.note(NoteKind.NOT_QUARANTINED, event.node, "it has no history of failures")
        return
    _put(m, node, LemonRecord(node.name, 0.0, m.wall))
    node.lemon, node.returns, node.held_until = None, [], 0.0
    m.histories.pop(node.name, None)
    _free(m, node, f"released: {event.reason}")


def _free(m: ClusterState, node: Node, why: str) -> None:
    m.note(NoteKind.UNQUARANTINED, node.name, why)
    m.ask_health()
    m.touch_all()


def _put(m: ClusterState, node: Node, record: LemonRecord) -> None:
    """Set a node's history and write it to etcd, unless a newer one replaces it before the write. A deletion
    (score 0) is always written."""
    node.lemon = record
    m.histories[node.name] = record
    m.store(
        f"lemon/{node.name}",
        fx.StoreHistory(record),
        wanted=lambda: node.lemon is record or not record.score,
    )
    take(m, node)
