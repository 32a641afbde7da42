"""What one leader remembers of how a job's state is kept. Plain mutable records; see `durability`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Streak:
    """Failures in a row: how many, since when (s), and why the newest one failed."""

    times: int = 0
    since: float = 0.0
    reason: str = ""

    def failed(self, now: float, reason: str) -> None:
        """One more."""
        self.since = self.since if self.times else now
        self.times, self.reason = self.times + 1, reason.partition("\n")[0]

    def over(self) -> None:
        """One has succeeded."""
        self.times, self.reason = 0, ""


@dataclass(slots=True)
class Keeping:
    """What is known of how a job's state is kept, by this leader."""

    checkpoints: Streak = field(default_factory=Streak)
    copies: Streak = field(default_factory=Streak)  # to the second storage, after the commit
    roomless: Streak = field(default_factory=Streak)  # looks at a rank without memory for its snapshots
    idle: bool = True
    durable_from: float = 0.0  # since when (s) of training the next durable checkpoint is waited for
