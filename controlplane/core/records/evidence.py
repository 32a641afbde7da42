"""Define evidence: one failure, and when the core learned of it."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import NO_RANK, Failure


@dataclass(frozen=True, slots=True)
class Evidence:
    """One failure that the core learned of at `learned_at` (s). `member` is "" when no member is dead."""

    learned_at: float
    failure: Failure
    member: str = ""
    node: str = ""
    rank: int = NO_RANK  # NO_RANK: it is about the whole job

    @property
    def injured_at(self) -> float:
        """When (s) the failure is believed to have happened."""
        return self.learned_at - self.failure.age_s
