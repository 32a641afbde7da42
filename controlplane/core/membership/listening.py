"""Measure how long nodes are silent, and what it costs to give one up, for those who choose the timeout.

A shorter `node_timeout_s` would give up nodes that live; a longer one has jobs wait longer for those that are
dead. Nothing is decided by these numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.membership import mass_failure
from controlplane.core.records.model import Cause
from controlplane.core.state.concerns import Noticing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.evidence import Evidence
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job


def spoke(state: ClusterState, node: Node) -> None:
    """A node whose processes live is heard: its silence ends. Call it before the node counts as up."""
    silence_s = state.now - mass_failure.last_alive_at(node)
    if node.state in ("up", "suspect"):
        node.listening.longest_s = max(node.listening.longest_s, silence_s)
    elif node.state == "lost":
        for name in node.listening.given_up:
            if (job := state.jobs.get(name)) is not None:
                job.recovery.noticing.mistaken_s.append(silence_s)
    node.listening.given_up = ()


def noticed(job: Job, fresh: Sequence[Evidence]) -> None:
    """Count failures that are judged together, by cause: several ranks of one cause are one failure."""
    known: Noticing = job.recovery.noticing
    after_s: dict[Cause, float] = {}
    for each in fresh:
        cause = each.failure.cause
        if cause is not Cause.RESIZED:
            after_s[cause] = max(after_s.get(cause, 0.0), each.failure.age_s)
    for cause, spent_s in after_s.items():
        known.times[cause] = known.times.get(cause, 0) + 1
        known.after_s[cause] = known.after_s.get(cause, 0.0) + spent_s
