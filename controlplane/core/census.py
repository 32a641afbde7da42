"""Count a cluster's nodes and processes for metrics, without a row for each of thousands of members. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.failures import eligibility, marks
from controlplane.core.records.model import Role
from controlplane.core.records.words import GONE

if TYPE_CHECKING:
    from controlplane.core.cluster import Cluster
    from controlplane.core.state.cluster_state import ClusterState


@dataclass(slots=True)
class Census:
    """The numbers of a cluster at one moment."""

    nodes: dict[str, int] = field(default_factory=dict)  # by state
    processes: dict[str, int] = field(default_factory=dict)  # by phase, of jobs that have not ended
    spare: int = 0  # nodes that are up, without a rank, and may take one; not those of last choice
    quarantined: int = 0  # nodes that are used only when no other is left
    silence_s: float = 0.0  # for how long (s) the most silent node that is up was not heard


def census(cluster: Cluster, now: float) -> Census:
    """Count what the cluster has now."""
    state, found = cluster.state, Census()
    busy = _processes(state, found)
    for node in state.nodes.values():
        shown = node.shown
        found.nodes[shown] = found.nodes.get(shown, 0) + 1
        last = eligibility.last_choice(state, node)
        found.quarantined += last
        if shown == "up":
            kept = last or marks.word(node) or eligibility.barred(state, node)
            found.spare += not kept and node.name not in busy
            found.silence_s = max(found.silence_s, now - node.last_contact_at)
    return found


def _processes(state: ClusterState, found: Census) -> dict[str, None]:
    """Count the processes, and return the nodes that hold a rank."""
    busy: dict[str, None] = {}
    for job in state.jobs.values():
        for member in () if job.ended else job.members.values():
            phase = member.phase
            if phase in GONE or member.dead:
                continue
            found.processes[phase.value] = found.processes.get(phase.value, 0) + 1
            if member.role is Role.RANK:
                busy[member.node] = None
    return busy
