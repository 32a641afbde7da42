"""What people see: read-only rows about a cluster, made for `status` and `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.cluster import Cluster
    from controlplane.core.model import CheckpointRecord, Incident


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `step`: steps completed by every rank; `last_checkpoint`: id, "" when none."""

    job: str
    phase: str
    reason: str
    generation: int
    world_size: int
    step: int
    restarts: int
    incidents: int
    last_checkpoint: str
    argv: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. `state`: expected, up, suspect, lost; `last_heard_s`: age in s."""

    node: str
    state: str
    address: str
    incarnation: int
    slots: int
    members: int
    last_heard_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class RankRow:
    """One member: a rank, or a spare (`rank` -1)."""

    job: str
    rank: int
    member: str
    node: str
    phase: str
    role: str
    generation: int
    step: int
    pid: int


def jobs(cluster: Cluster, now: float) -> tuple[JobRow, ...]:
    """All jobs, by name."""
    return ()


def nodes(cluster: Cluster, now: float) -> tuple[NodeRow, ...]:
    """All nodes, by name."""
    return ()


def ranks(cluster: Cluster, now: float) -> tuple[RankRow, ...]:
    """Living members of all jobs that are not at their end: by job, ranks first, then spares."""
    return ()


def checkpoints(cluster: Cluster, now: float) -> tuple[CheckpointRecord, ...]:
    """All checkpoints that etcd holds, by job, oldest first."""
    return ()


def incidents(cluster: Cluster, now: float) -> tuple[Incident, ...]:
    """Incidents of this leader's term, oldest first."""
    return ()
