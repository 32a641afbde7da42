"""Define evidence: one failure as the core heard of it."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import NO_RANK, Failure


@dataclass(frozen=True, slots=True)
class Evidence:
    """One failure as the core heard of it at `heard_at` (s). `member` is "" when nobody is dead."""

    heard_at: float
    failure: Failure
    member: str = ""
    node: str = ""
    rank: int = NO_RANK

    @property
    def injured_at(self) -> float:
        """When it is believed to have happened."""
        return self.heard_at - self.failure.age_s
