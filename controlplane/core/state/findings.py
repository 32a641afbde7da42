"""Define what is wrong with the cluster as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(slots=True)
class Brake:
    """While it is on. `waits`: silent nodes, and why they are believed gone; "" while nothing is known."""

    since: float
    reason: str
    waits: dict[str, str] = field(default_factory=dict)


class Level(StrEnum):
    """How the cluster is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    level: Level
    subject: str
    reason: str
    job: str = ""  # whose it is; "": nobody's in particular
    loud: bool = True  # administrators are told; what may pass by itself is shown and nothing more
