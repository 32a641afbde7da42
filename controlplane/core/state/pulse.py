"""What a training job does again and again, and how long that usually takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.words import NO_STEP

GAP_KEPT = 0.9
"""What is left of the longest gap with each further one: a decaying maximum."""

NEVER = -1.0


@dataclass(slots=True)
class Pulse:
    """One such thing of one job. `mark`: what was done last; it differs each time. Times in s."""

    gap_s: float  # the longest between two of them, decaying; before any was seen, what is believed of it
    mark: tuple[int, ...] = ()
    at: float = NEVER  # since when that is so, and the job trains; NEVER: it does not
    step: int = NO_STEP  # where training was then
    overdue: str = ""  # why it is; "": it is not
    since: float = 0.0  # when that was found
    tries: int = 0  # how often the job was looked at again since
    again_at: float = 0.0  # no further time before

    def rest(self) -> None:
        """The job does not train: nothing is owed."""
        self.at, self.overdue, self.tries = NEVER, "", 0

    def move(self, mark: tuple[int, ...], step: int, now: float) -> bool:
        """It was done since the last look, or the job has only begun to train. Whether that is so."""
        if self.at != NEVER and mark == self.mark:
            return False
        if self.at != NEVER and not self.overdue:  # what was overdue is no measure
            self.gap_s = max(now - self.at, self.gap_s * GAP_KEPT)
        self.rest()
        self.mark, self.at, self.step = mark, now, step
        return True

    def bound_s(self, least_s: float, factor: float) -> float:
        """So long it may take."""
        return max(least_s, factor * self.gap_s)

    def late(self, now: float, bound_s: float) -> bool:
        """Whether it has taken longer than that."""
        return self.at != NEVER and now > self.at + bound_s

    def try_again(self, now: float, bound_s: float) -> bool:
        """Whether the job is to be looked at again now; each time after twice as long as before."""
        if now < self.again_at and self.tries:
            return False
        self.tries += 1
        self.again_at = now + bound_s * 2 ** min(self.tries - 1, 4)
        return True
