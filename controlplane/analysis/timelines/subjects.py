"""Name who or what a finding is about: a worker, a stage, a replica, a link, or nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.timelines import policy
from controlplane.core.state.findings import Finding

if TYPE_CHECKING:
    from controlplane.analysis.timelines.records import Steps
    from controlplane.analysis.timelines.what_if import Mask


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the job that costs time. `alone`: T with only this part as recorded, over T_ideal."""

    finding: Finding
    alone: float
    mask: Mask


@dataclass(frozen=True, slots=True)
class Subject:
    """A text for people, and coordinates for programs: None where it holds for all."""

    text: str
    place: tuple[tuple[str, int | str | None], ...]

    def finding(
        self,
        kind: str,
        alone: float,
        reason: str,
        confidence: float,
        evidence: tuple[tuple[str, float | str], ...],
        recommendation: str,
    ) -> Finding:
        """A finding about this subject; its level follows from what it costs."""
        return Finding(
            kind,
            policy.level(alone),
            self.text,
            reason,
            place=self.place,
            confidence=confidence,
            evidence=evidence,
            recommendation=recommendation,
        )


def named(steps: Steps, *, stage: int | None = None, replica: int | None = None) -> Subject:
    """The worker at (stage, replica); all of a stage or of a replica where the other is None."""
    dp_rank = None if replica is None else steps.dp_ranks[replica]
    rank = None if stage is None or replica is None else int(steps.ranks[stage, replica])
    words = [] if dp_rank is None else [f"dp_rank {dp_rank}"]
    words += [] if stage is None else [f"stage {stage}"]
    text = ", ".join(words) + ("" if rank is None else f" (rank {rank})")
    return Subject(text, (("dp_rank", dp_rank), ("stage", stage), ("rank", rank)))
