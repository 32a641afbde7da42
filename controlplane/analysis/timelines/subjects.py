"""Name who or what a finding is about (a worker, a stage, a replica, a link, nobody), and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.timelines import policy
from controlplane.core.state.findings import Finding, Recommendation

if TYPE_CHECKING:
    from controlplane.analysis.steps.records import Steps
    from controlplane.analysis.steps.what_if import Mask, WhatIf

Evidence = tuple[tuple[str, float | str], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the job that costs time. `alone`: T with only this part as recorded, over T_ideal."""

    finding: Finding
    alone: float
    mask: Mask


@dataclass(frozen=True, slots=True)
class Subject:
    """A text for people, and coordinates for programs; None in a coordinate: the finding holds for all."""

    text: str
    place: tuple[tuple[str, int | str | None], ...]


@dataclass(frozen=True, slots=True)
class Charge:
    """What a detector says against a subject, before it is known what that costs."""

    kind: str
    subject: Subject
    mask: Mask
    reason: str
    confidence: float
    evidence: Evidence
    recommendation: str

    def part(self, what_if: WhatIf, alone: float | None = None) -> Part | None:
        """The part with its finding; None when it costs too little. `alone`: where it is known already."""
        alone = what_if.alone(self.mask) if alone is None else alone
        if alone < policy.COST_RATIO:
            return None
        cost_s = what_if.step_s - what_if.fixed_s(self.mask)
        finding = Finding(
            self.kind,
            policy.level(alone),
            self.subject.text,
            f"{self.reason}; this alone makes a step {alone:.2f} times as long",
            place=self.subject.place,
            confidence=self.confidence,
            evidence=(*self.evidence, ("slowdown_alone_ratio", alone), ("cost_s_per_step", cost_s)),
            recommendations=(Recommendation(self.recommendation),),
        )
        return Part(finding, alone, self.mask)


def named(steps: Steps, *, stage: int | None = None, replica: int | None = None) -> Subject:
    """The worker at (stage, replica); all of a stage or of a replica where the other is None."""
    dp_rank = None if replica is None else steps.dp_ranks[replica]
    rank = None if stage is None or replica is None else int(steps.ranks[stage, replica])
    words = [] if dp_rank is None else [f"dp_rank {dp_rank}"]
    words += [] if stage is None else [f"stage {stage}"]
    text = ", ".join(words) + ("" if rank is None else f" (rank {rank})")
    return Subject(text, (("dp_rank", dp_rank), ("stage", stage), ("rank", rank)))
