"""Define what is wrong with the cluster as a whole: the mass-failure guard, and findings of health."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(slots=True)
class MassFailureGuard:
    """The mass-failure guard while it is on: since when (s), and why.

    `waits`: each silent node, and the answer to its probe; "" while there is none."""

    since: float
    reason: str
    waits: dict[str, str] = field(default_factory=dict)


class Level(StrEnum):
    """How healthy the cluster, or one job, is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    level: Level
    subject: str  # node, device, job or row; "": the cluster
    reason: str
    job: str = ""  # the job it is about; "": no particular one
    loud: bool = True  # administrators are alerted; otherwise it is only shown, since it may pass by itself
