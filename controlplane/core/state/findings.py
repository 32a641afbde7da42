"""Define what is wrong: with the cluster as a whole, with a job, or in recorded data of any job."""

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


SEVERITIES = {Level.DEGRADED: "warning", Level.CRITICAL: "critical"}
"""The severity of a finding of each level, in the words of alerts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Health rules fill the fields up to `loud`; diagnosis fills the others too, and never `job` or `loud`."""

    kind: str
    level: Level
    subject: str
    reason: str
    job: str = ""  # whose it is; "": nobody's in particular
    loud: bool = True  # administrators are told; what may pass by itself is shown and nothing more
    place: tuple[tuple[str, int | str | None], ...] = ()  # the subject by named coordinates
    confidence: float = 1.0  # 0 to 1: how sure it is that `subject` is to blame
    evidence: tuple[tuple[str, float | str], ...] = ()  # numbers and facts; each name ends in its unit
    recommendation: str = ""  # what to do

    @property
    def severity(self) -> str:
        """`warning` or `critical`. Raises KeyError for the level `healthy`, which no finding has."""
        return SEVERITIES[self.level]
