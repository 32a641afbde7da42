"""Remember how well a job's state has been kept. Mutable records; `checkpoint/durability.py` judges them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Streak:
    """Failures in a row: how many, since when (s), and the reason of the newest."""

    times: int = 0
    since: float = 0.0
    reason: str = ""

    def failed(self, now: float, reason: str) -> None:
        """Count one more failure; only the first line of the reason is kept."""
        self.since = self.since if self.times else now
        self.times, self.reason = self.times + 1, reason.partition("\n")[0]

    def over(self) -> None:
        """End the streak: there was a success."""
        self.times, self.reason = 0, ""


@dataclass(slots=True)
class DurabilityRecord:
    """Failures to keep a job's state, as this leader has seen them."""

    checkpoints: Streak = field(default_factory=Streak)  # checkpoints that were not committed
    # Committed checkpoints that were not copied to the second storage.
    copies: Streak = field(default_factory=Streak)
    marks: Streak = field(
        default_factory=Streak
    )  # marks of suspect checkpoints that the storage did not take
    unmarked: str = ""  # why a suspect checkpoint gets no mark although the storage is well; "": it gets one
    # Checks that found a rank without shared memory for snapshots.
    roomless: Streak = field(default_factory=Streak)
    idle: bool = True  # it was last seen in a phase without new state to keep
    durable_from: float = 0.0  # when (s) it last committed a checkpoint, or began to train
