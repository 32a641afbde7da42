"""Quarantine faulty nodes: weigh the failures that begin on each node, and let the score decay.

A node whose score exceeds `lemon_score` is the last choice for ranks and spares for a while. The history
is in etcd, with Unix times, so that it outlives leaders and restarts. Only failures that began on a node
count, not those that followed elsewhere."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import blame, node_checks, verdicts
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, LemonRecord
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import in_words

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
        what = ", ".join(f"{times} x {in_words(name)}" for name, times in causes.items())
        reason = f"quarantined, score {score:.1f} is over {s.lemon_score:g}: {what}"
    return LemonRecord(record.node, round(score, 4), wall_s, until_s, reason, tuple(causes.items()))


def charge(state: ClusterState, node: Node, cause: Cause, message: str) -> None:
    """Count a failure that began on this node."""
    weighs = weight(cause, message)
    if not weighs:
        return
    before = quarantined(node.failure_history, state.wall)
    record = node.failure_history or LemonRecord(node.name, 0.0, state.wall)
    _put(state, node, charged(record, cause, weighs, state.wall, state.settings))
    node_checks.want(state, node, f"a failure began on it: {cause}")
    if not before and quarantined(node.failure_history, state.wall) and node.failure_history is not None:
        state.note(NoteKind.QUARANTINED, node.name, node.failure_history.reason)
        state.ask_health()


def charge_judged(state: ClusterState, fresh: Sequence[Evidence]) -> None:
    """Count the judged failure against the node where it began. Losses of whole nodes are counted where
    they are detected."""
    first = verdicts.root(fresh)
    node = state.nodes.get(first.node)
    if node is not None and first.failure.cause not in verdicts.NODE_CAUSES:
        charge(state, node, first.failure.cause, f"{first.failure.exception} {first.failure.message}")


def adopt(state: ClusterState, records: Sequence[LemonRecord]) -> None:
    """Take over the histories that etcd holds. Nodes that are not known yet get theirs when they join."""
    for record in records:
        state.histories[record.node] = record
        if record.node in state.nodes:
            take(state, state.nodes[record.node])


def take(state: ClusterState, node: Node) -> None:
    """Give a node its history, and set the deadline of its quarantine."""
    node.failure_history = node.failure_history or state.histories.get(node.name)
    if node.failure_history is not None and quarantined(node.failure_history, state.wall):
        state.deadlines.sooner(("quarantine", node.name), node.failure_history.until_s - state.wall_s)


def expired(state: ClusterState, name: str) -> None:
    """At the deadline of a quarantine: end it. The decayed score stays."""
    node = state.nodes[name]
    if node.failure_history is None or not node.failure_history.until_s:
        return
    if quarantined(node.failure_history, state.wall):
        take(state, node)
        return
    score = decayed(node.failure_history, state.wall, state.settings.lemon_half_life_s)
    _put(
        state,
        node,
        dataclasses.replace(node.failure_history, score=score, at_s=state.wall, until_s=0.0, reason=""),
    )
    _free(state, node, "its quarantine is over")


def release(state: ClusterState, event: ev.QuarantineReleased) -> None:
    """A person declares the node sound: delete its history and what a check found, end its quarantine and
    its hold-down."""
    node = state.nodes.get(event.node)
    doubted = node is not None and node_checks.release(state, node)
    if node is None or node.failure_history is None:
        if node is not None and doubted:
            _free(state, node, f"released: {event.reason}")
            return
        state.note(NoteKind.NOT_QUARANTINED, event.node, "it has no history of failures")
        return
    _put(state, node, LemonRecord(node.name, 0.0, state.wall))
    node.failure_history, node.returns, node.held_until = None, [], 0.0
    state.histories.pop(node.name, None)
    _free(state, node, f"released: {event.reason}")


def _free(state: ClusterState, node: Node, why: str) -> None:
    state.note(NoteKind.UNQUARANTINED, node.name, why)
    state.ask_health()
    state.touch_all()


def _put(state: ClusterState, node: Node, record: LemonRecord) -> None:
    """Set a node's history and write it to etcd, unless a newer one replaces it before the write. A deletion
    (score 0) is always written."""
    node.failure_history = record
    state.histories[node.name] = record
    state.store(
        f"lemon/{node.name}",
        fx.StoreHistory(record),
        wanted=lambda: node.failure_history is record or not record.score,
    )
    take(state, node)
