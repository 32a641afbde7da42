"""Measure how regularly a training job does something, and say when it is overdue. Pure.

Such a thing is a new snapshot on all ranks, or a committed checkpoint. Its usual time is the longest gap
seen lately: a maximum that decays with each further gap, so that one slow checkpoint does not blind the
watch for ever."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.words import NO_STEP

GAP_KEPT = 0.9
"""With each further gap, the longest one shrinks by this factor."""

NEVER = -1.0
"""Value of `Pulse.at` while the job does not train."""


@dataclass(slots=True)
class Pulse:
    """One thing that a job does again and again. Times in s."""

    gap_s: float  # longest gap, decaying; before one was seen, an assumption
    mark: tuple[int, ...] = ()  # identifies the last time it was done: differs each time
    at: float = NEVER  # when `mark` was first seen; NEVER: the job does not train
    step: int = NO_STEP  # the step of training then
    overdue: str = ""  # why it is overdue; "": it is not
    since: float = 0.0  # when that was found
    tries: int = 0  # repairs tried since then
    again_at: float = 0.0  # no further repair before then

    def rest(self) -> None:
        """The job does not train: nothing is due."""
        self.at, self.overdue, self.tries = NEVER, "", 0

    def move(self, mark: tuple[int, ...], step: int, now: float) -> bool:
        """Record what a check finds: the present `mark` and `step`. Return whether it was done since the last
        check, or training has only begun."""
        if self.at != NEVER and mark == self.mark:
            return False
        if self.at != NEVER and not self.overdue:  # a gap in which it was overdue is not a usual one
            self.gap_s = max(now - self.at, self.gap_s * GAP_KEPT)
        self.rest()
        self.mark, self.at, self.step = mark, now, step
        return True

    def bound_s(self, least_s: float, factor: float) -> float:
        """The longest time (s) it may take: `factor` times the longest gap, at least `least_s`."""
        return max(least_s, factor * self.gap_s)

    def late(self, now: float, bound_s: float) -> bool:
        """Whether it has taken longer than `bound_s`."""
        return self.at != NEVER and now > self.at + bound_s

    def try_again(self, now: float, bound_s: float) -> bool:
        """Whether to try a repair now. The wait doubles with each try, up to 16 times `bound_s`."""
        if now < self.again_at and self.tries:
            return False
        self.tries += 1
        self.again_at = now + bound_s * 2 ** min(self.tries - 1, 4)
        return True
