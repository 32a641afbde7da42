"""Define evidence: one failure, and when the core learned of it; and what a replay of the step says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


class Origin(StrEnum):
    """What made replicas of the state differ."""

    HARDWARE = "hardware"  # memory, or a device that computes wrongly
    SOFTWARE = "software"  # what the script does
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """What made replicas differ. `why`: the row of the table that decided (failures/step_replays.py).

    `ranks`: those whose process, or whose program, it was; (): not known."""

    origin: Origin
    why: str
    ranks: tuple[int, ...] = ()
