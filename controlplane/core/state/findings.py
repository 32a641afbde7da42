"""Define what is wrong: with the cluster as a whole, with a job, or in recorded data of any job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(slots=True)
class MassFailureGuard:
    """The mass-failure guard while it is on: since when (s), and why.

    `waits`: each silent node, and the answer to its probe; "" while there is none. `unanswered`: those
    without an answer. `addressless`: those that cannot be probed. `excused_s`: by how long the leader itself
    did not listen meanwhile."""

    since: float
    reason: str
    excused_s: float = 0.0
    waits: dict[str, str] = field(default_factory=dict)
    unanswered: dict[str, None] = field(default_factory=dict)
    addressless: dict[str, None] = field(default_factory=dict)

    def wait(self, node: str, answer: str, *, has_address: bool) -> None:
        """Wait for this node from now on, or take the answer to its probe."""
        self.forget(node)
        self.waits[node] = answer
        if not answer:
            self.unanswered[node] = None
        if not has_address:
            self.addressless[node] = None

    def forget(self, node: str) -> bool:
        """Wait for this node no more. Returns whether it was waited for."""
        self.unanswered.pop(node, None)
        self.addressless.pop(node, None)
        return self.waits.pop(node, None) is not None


@dataclass(slots=True)
class NodeListening:
    """What this leader has measured of one node's silences. Without the time in which it did not listen."""

    longest_s: float = 0.0  # the longest one that ended before the node was given up
    given_up: tuple[str, ...] = ()  # jobs whose ranks were given up with the node, while it is lost
    process_timeout_s: float = 0.0  # of its agent; 0: not sent


class Level(StrEnum):
    """How healthy the cluster, or one job, is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


SEVERITIES = {Level.DEGRADED: "warning", Level.CRITICAL: "critical"}
"""The severity of a finding of each level, in the words of alerts."""


class Effort(StrEnum):
    """How much work a recommendation is for people."""

    LOW = "low"  # a setting, or one command
    MEDIUM = "medium"  # a change of the script or of the layout
    HIGH = "high"  # other hardware, or another model


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Something to do about a finding. `gain_ratio`: the share of a step's time that it would save; None: not
    known. `effort`: None where it was not judged."""

    action: str
    gain_ratio: float | None = None
    effort: Effort | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Health rules fill the fields up to `loud`, and `rule`; diagnosis fills the others too, and never `job`,
    `loud` or `rule`."""

    kind: str
    level: Level
    subject: str  # node, device, job or row; "": the cluster
    reason: str
    job: str = ""  # the job it is about; "": no particular one
    loud: bool = True  # administrators are alerted; otherwise it is only shown, since it may pass by itself
    place: tuple[tuple[str, int | str | None], ...] = ()  # the subject by named coordinates
    confidence: float = 1.0  # 0 to 1: how sure it is that `subject` is to blame
    evidence: tuple[tuple[str, float | str], ...] = ()  # numbers and facts; each name ends in its unit
    recommendations: tuple[Recommendation, ...] = ()  # the best first
    first_step: int | None = None  # of the job, in which it began; None: not known
    rule: str = ""  # of the cluster's health, which found it; "": diagnosis did

    @property
    def recommendation(self) -> str:
        """What to do first; "" when nothing is recommended."""
        return self.recommendations[0].action if self.recommendations else ""

    @property
    def severity(self) -> str:
        """`warning` or `critical`. Raises KeyError for the level `healthy`, which no finding has."""
        return SEVERITIES[self.level]
