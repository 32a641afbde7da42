"""A cluster in numbers, counted without making a row for each of its thousands of members. Pure."""

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
    """`nodes` by state, `processes` by phase; nodes up and free to take a first rank; nodes that are
    taken only when no other is left; and for how long
    (s) the most silent node that is up was not heard."""

    nodes: dict[str, int] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    spare: int = 0
    quarantined: int = 0
    silence_s: float = 0.0


def census(cluster: Cluster, now: float) -> Census:
    """Count what the cluster has now."""
    m, found = cluster.machine, Census()
    busy = _processes(m, found)
    for node in m.nodes.values():
        state = node.shown
        found.nodes[state] = found.nodes.get(state, 0) + 1
        last = eligibility.last_choice(m, node)
        found.quarantined += last
        if state == "up":
            kept = last or marks.word(node) or eligibility.barred(m, node)
            found.spare += not kept and node.name not in busy
            found.silence_s = max(found.silence_s, now - node.heard_at)
    return found


def _processes(m: ClusterState, found: Census) -> dict[str, None]:
    """Count the processes; the nodes that hold a rank."""
    busy: dict[str, None] = {}
    for job in m.jobs.values():
        for member in () if job.ended else job.members.values():
            phase = member.phase
            if phase in GONE or member.dead:
                continue
            found.processes[phase.value] = found.processes.get(phase.value, 0) + 1
            if member.role is Role.RANK:
                busy[member.node] = None
    return busy
