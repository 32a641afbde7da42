"""Account for a job's time: on training, or on what kept it from training. Pure: `now` is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.core.records.model import JobPhase

FORMING, WAITING, REDONE, SNAPSHOT = "forming", "waiting", "redone", "snapshot"
PRODUCTIVE, NOWHERE = "productive", "nowhere"

TIMES: dict[JobPhase, str] = {
    JobPhase.PENDING: WAITING,
    JobPhase.LAUNCHING: FORMING,
    JobPhase.RUNNING: PRODUCTIVE,
    JobPhase.STOPPING: FORMING,
    JobPhase.LOADING: FORMING,
    JobPhase.STORING: FORMING,
    JobPhase.FORMING: FORMING,
    JobPhase.LEAVING: NOWHERE,
    JobPhase.PARKED: WAITING,
    JobPhase.PAUSED: NOWHERE,
    JobPhase.FINISHED: NOWHERE,
    JobPhase.FAILED: NOWHERE,
    JobPhase.STOPPED: NOWHERE,
}
"""What the time in a phase counts as. FORMING within an incident counts as the incident's cause; NOWHERE
counts as nothing."""


@dataclass(slots=True)
class Spent:
    """Seconds of a job: productive ones, and those that were lost."""

    productive_s: float = 0.0
    lost_s: dict[str, float] = field(default_factory=dict)  # by cause


BIN_S = 60.0
"""Seconds of one bin of an account: a minute."""
BINS_KEPT = 180
"""Newest bins that an account keeps."""


@dataclass(slots=True)
class Account:
    """What was spent on a job since `since_s` (Unix time), in total and by minute."""

    since_s: float
    total: Spent = field(default_factory=Spent)
    bins: dict[int, Spent] = field(default_factory=dict)  # by Unix time / BIN_S, the last BINS_KEPT

    def add(self, wall_s: float, spent: Spent) -> None:
        """Add seconds that were spent just before `wall_s` (Unix time)."""
        if not spent.productive_s and not spent.lost_s:
            return
        here = self.bins.setdefault(int(wall_s // BIN_S), Spent())
        for each in (self.total, here):
            each.productive_s += spent.productive_s
            for cause, lost_s in spent.lost_s.items():
                each.lost_s[cause] = each.lost_s.get(cause, 0.0) + lost_s
        while len(self.bins) > BINS_KEPT:
            del self.bins[min(self.bins)]

    def row(self) -> dict[str, Any]:
        """Return the total as plain data, in s."""
        return {"since_s": round(self.since_s, 3), **_plain(self.total)}

    def rows(self) -> list[dict[str, Any]]:
        """Return the minutes as plain data, oldest first."""
        return [{"at_s": number * BIN_S, **_plain(spent)} for number, spent in sorted(self.bins.items())]


def _plain(spent: Spent) -> dict[str, Any]:
    lost_s = {cause: round(span_s, 2) for cause, span_s in sorted(spent.lost_s.items())}
    return {"productive_s": round(spent.productive_s, 2), "lost_s": lost_s}


class JobTimes:
    """One job's account. Every second since `now` counts once, as productive, as lost, or as nothing (TIMES).

    Some time turns out to be lost only later (the time until a failure was noticed, steps that are done
    again). It counts as lost at once, and is subtracted from the next productive seconds, so that no
    counter ever goes down."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._phase = JobPhase.PENDING
        self._cause = ""
        self._owed_s = 0.0
        self._spent = Spent()

    def enter(self, now: float, phase: JobPhase) -> None:
        """Change the job's phase."""
        self._settle(now)
        self._phase = phase
        if TIMES[phase] in (PRODUCTIVE, NOWHERE):
            self._cause = ""

    def judged(self, now: float, cause: str) -> None:
        """Count the time until the job runs again as lost to this cause."""
        self._settle(now)
        self._cause = cause

    def owe(self, cause: str, lost_s: float) -> None:
        """Count time as lost that was counted as productive before."""
        self._lose(cause, max(0.0, lost_s))
        self._owed_s += max(0.0, lost_s)

    def take(self, now: float) -> Spent:
        """Return what was spent since the last call."""
        self._settle(now)
        spent, self._spent = self._spent, Spent()
        return spent

    def _settle(self, now: float) -> None:
        span_s, self._since = max(0.0, now - self._since), max(now, self._since)
        kind = TIMES[self._phase]
        if kind == PRODUCTIVE:
            paid_s = min(span_s, self._owed_s)
            self._owed_s -= paid_s
            self._spent.productive_s += span_s - paid_s
        elif kind != NOWHERE:
            self._lose(self._cause or kind, span_s)

    def _lose(self, cause: str, lost_s: float) -> None:
        if lost_s > 0:
            self._spent.lost_s[cause] = self._spent.lost_s.get(cause, 0.0) + lost_s


class StepPace:
    """Measures how fast a job makes steps, from looks at it about once a second."""

    def __init__(self) -> None:
        self._step, self._at = -1, 0.0
        self.mean_s = 0.0

    def look(self, now: float, step: int) -> float:
        """Return the mean duration (s) of the steps since the last progress; 0 when there were none."""
        before, since = self._step, self._at
        if step == before:
            return 0.0
        self._step, self._at = step, now
        if before < 0 or step < before:
            return 0.0
        mean_s = (now - since) / (step - before)
        self.mean_s = mean_s if not self.mean_s else 0.9 * self.mean_s + 0.1 * mean_s
        return mean_s

    def stop(self) -> None:
        """Forget the last step: the job does not run, and the time until it does belongs to no step."""
        self._step = -1
