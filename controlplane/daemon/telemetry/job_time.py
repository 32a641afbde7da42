"""Account for a job's time: on training, or on what kept it from training. Pure: `now` is an argument.

Every second counts once: as productive (steps were made, and kept), as lost to a cause, or as unknown
(nothing told whether steps were made). The three add up to the time that the job was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.core.records.model import JobPhase
from controlplane.daemon.telemetry import badput

FORMING, WAITING, REDONE, SNAPSHOT = "forming", "waiting", "redone", "snapshot"
RESTORE, STARTUP = "restore", "startup"
PRODUCTIVE, NOWHERE, UNKNOWN = "productive", "nowhere", "unknown"

TIMES: dict[JobPhase, str] = {
    JobPhase.PENDING: WAITING,
    JobPhase.LAUNCHING: FORMING,
    JobPhase.RUNNING: PRODUCTIVE,
    JobPhase.STOPPING: FORMING,
    JobPhase.LOADING: RESTORE,
    JobPhase.STORING: FORMING,
    JobPhase.FORMING: FORMING,
    JobPhase.LEAVING: NOWHERE,
    JobPhase.PARKED: WAITING,
    JobPhase.PAUSED: NOWHERE,
    JobPhase.FINISHED: NOWHERE,
    JobPhase.FAILED: NOWHERE,
    JobPhase.STOPPED: NOWHERE,
}
"""What the time in a phase counts as. FORMING within an incident counts as the incident's cause, and RUNNING
until the first step is complete as that cause, or as STARTUP; NOWHERE counts as nothing."""


@dataclass(slots=True)
class Spent:
    """Seconds of a job: productive ones, lost ones, and those of which nothing is known."""

    productive_s: float = 0.0
    lost_s: dict[str, float] = field(default_factory=dict)  # by cause
    unknown_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of them together."""
        return self.productive_s + self.unknown_s + sum(self.lost_s.values())

    @property
    def empty(self) -> bool:
        """Whether no time was spent."""
        return not self.productive_s and not self.lost_s and not self.unknown_s

    def add(self, other: Spent) -> None:
        """Add the seconds of another one."""
        self.productive_s += other.productive_s
        self.unknown_s += other.unknown_s
        for cause, lost_s in other.lost_s.items():
            self.lost_s[cause] = self.lost_s.get(cause, 0.0) + lost_s

    def give_back(self, missing_s: float) -> float:
        """Give `missing_s` of training back, and what has become less than 0. Returns what there is too
        little of."""
        self.productive_s -= missing_s
        for less, more in (("productive_s", "unknown_s"), ("unknown_s", "productive_s")):
            if (value := getattr(self, less)) < 0:
                setattr(self, less, 0.0)
                setattr(self, more, getattr(self, more) + value)
        missing_s, self.productive_s = max(0.0, -self.productive_s), max(0.0, self.productive_s)
        return missing_s

    def lose(self, cause: str, lost_s: float) -> None:
        """Add seconds that were lost to this cause."""
        if lost_s > 0:
            self.lost_s[cause] = self.lost_s.get(cause, 0.0) + lost_s


BIN_S = 60.0
"""Seconds of one bin of an account: a minute."""
BINS_KEPT = 180
"""Newest bins that an account keeps."""
HOUR_BINS = 60
LIVES_KEPT = 16
"""Newest lives that an account keeps one by one; the total has all of them."""


@dataclass(slots=True)
class Life:
    """One life of a job: from one start of all its processes to the next."""

    since_s: float  # Unix time
    spent: Spent = field(default_factory=Spent)


@dataclass(slots=True)
class Account:
    """What was spent on a job since `since_s` (Unix time): in total, by life and by minute.

    Total and lives are corrected as soon as training turns out to be lost; the minutes are not, since it is
    not known to which of them that belongs."""

    since_s: float
    total: Spent = field(default_factory=Spent)
    bins: dict[int, Spent] = field(default_factory=dict)  # by Unix time / BIN_S, the last BINS_KEPT
    lives: list[Life] = field(default_factory=list)  # oldest first; empty: the job has had one
    until_s: float = 0.0  # Unix time up to which it is complete; 0: not known
    late: bool = False  # the job is older: no leader has saved an account of what was before `since_s`

    def add(self, wall_s: float, spent: Spent, corrected: Spent | None = None) -> None:
        """Add seconds that were spent just before `wall_s` (Unix time). `corrected`: what to add besides to
        total and lives; it may be less than 0 (`JobTimes.corrections`)."""
        self.until_s = wall_s
        if not spent.empty:
            self.bins.setdefault(int(wall_s // BIN_S), Spent()).add(spent)
            while len(self.bins) > BINS_KEPT:
                del self.bins[min(self.bins)]
        for each in (self.total, *(life.spent for life in self.lives[-1:])):
            each.add(spent)
            each.add(corrected or Spent())
        missing_s = 0.0
        for each in (life.spent for life in reversed(self.lives)):
            missing_s = each.give_back(missing_s)
        self.total.give_back(0.0)

    def begin_life(self, wall_s: float) -> None:
        """All processes of the job start (again). A life in which no time was spent is not kept."""
        if not self.lives:
            if self.total.empty:
                return
            self.lives.append(Life(self.since_s))
            self.lives[0].spent.add(self.total)
        if not self.lives[-1].spent.empty:
            self.lives.append(Life(wall_s))
        del self.lives[:-LIVES_KEPT]

    @property
    def goodput(self) -> float | None:
        """The share of the time that was productive and kept; None: no time, or most of it is unknown."""
        return _goodput(self.total)

    def kept_share(self) -> float:
        """The share of the newest hour that no failure took: recovery, restoring, and steps done again.

        1 where there was none. What is lost within steps, or before the first one, does not count."""
        newest = sorted(self.bins)[-HOUR_BINS:]
        whole = Spent()
        for number in newest:
            if number > newest[-1] - HOUR_BINS:
                whole.add(self.bins[number])
        names = {cause: badput.NAMES.get(cause) for cause in whole.lost_s}
        if badput.RECOVERY not in names.values():
            return 1.0  # state was restored as the job began, if at all
        failed_s = sum(whole.lost_s[cause] for cause, name in names.items() if name in badput.OF_FAILURES)
        return 1.0 - failed_s / whole.total_s

    def curve(self) -> dict[str, Any]:
        """Return the goodput of each minute as plain data, as a curve of the page has it."""
        rows = self.rows()
        values = [row["goodput"] for row in rows]
        return {"at_s": [row["at_s"] for row in rows], "values": values, "values_each": 1}

    def row(self) -> dict[str, Any]:
        """Return the account as plain data, in s, with the names of Google's library (`badput`)."""
        return {
            "since_s": round(self.since_s, 3),
            **_plain(self.total),
            "badput_s": badput.totals(self.total.lost_s, self.total.unknown_s),
            "lives": [{"since_s": round(life.since_s, 3), **_plain(life.spent)} for life in self.lives],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the minutes as plain data, oldest first."""
        return [{"at_s": number * BIN_S, **_plain(spent)} for number, spent in sorted(self.bins.items())]


def _goodput(spent: Spent) -> float | None:
    known_s = spent.productive_s + sum(spent.lost_s.values())
    return spent.productive_s / (known_s + spent.unknown_s) if known_s > spent.unknown_s else None


def _plain(spent: Spent) -> dict[str, Any]:
    lost_s = {cause: round(span_s, 2) for cause, span_s in sorted(spent.lost_s.items())}
    goodput = _goodput(spent)
    return {
        "productive_s": round(spent.productive_s, 2),
        "lost_s": lost_s,
        "unknown_s": round(spent.unknown_s, 2),
        "total_s": round(spent.total_s, 2),
        "goodput": None if goodput is None else round(goodput, 4),
    }


class JobTimes:
    """One job's time. Every second since `now` counts once, as productive, lost or unknown, or as nothing
    (TIMES).

    Some time turns out to be lost only later (the time until a failure was noticed, steps that are done
    again, waits within steps). It counts as lost at once, and is subtracted from the next seconds of
    training, so that no counter ever goes down. No more can turn out to be lost than has counted as
    training: `trained_s` is how much that was before."""

    def __init__(self, now: float, trained_s: float = 0.0) -> None:
        self._since = now
        self._phase = JobPhase.PENDING
        self._cause = ""
        self._running_as = PRODUCTIVE
        self._trained_s = trained_s
        self._owed_s = 0.0
        self._corrections = Spent()
        self.elapsed_s = 0.0  # all seconds that count, measured apart from what they count as
        self._spent = Spent()

    def enter(self, now: float, phase: JobPhase) -> None:
        """Change the job's phase."""
        self._settle(now)
        self._phase, self._running_as = phase, PRODUCTIVE
        if TIMES[phase] == NOWHERE:
            self._cause = ""

    def judged(self, now: float, cause: str) -> None:
        """Count the time until the job runs again as lost to this cause."""
        self._settle(now)
        self._cause = cause

    def trains_as(self, now: float, kind: str) -> None:
        """What the time in RUNNING counts as, since the last call: PRODUCTIVE, STARTUP (no step is complete
        yet; after a failure its cause), or UNKNOWN (nobody sees the steps)."""
        self._running_as = kind
        self._settle(now)

    def owe(self, cause: str, lost_s: float) -> float:
        """Count time as lost that was counted as training before. Returns how much was counted."""
        taken_s = max(0.0, min(lost_s, self._trained_s - self._owed_s))
        self._spent.lose(cause, taken_s)
        self._corrections.productive_s -= taken_s
        self._owed_s += taken_s
        return taken_s

    def take(self, now: float) -> Spent:
        """Return what was spent since the last call."""
        self._settle(now)
        spent, self._spent = self._spent, Spent()
        return spent

    def corrections(self) -> Spent:
        """What counters cannot show, since the last call: training that is lost by now counts less than 0,
        and seconds that were not counted for it count after all."""
        corrections, self._corrections = self._corrections, Spent()
        return corrections

    def _settle(self, now: float) -> None:
        span_s, self._since = max(0.0, now - self._since), max(now, self._since)
        kind = TIMES[self._phase]
        if kind == NOWHERE:
            return
        self.elapsed_s += span_s
        if kind == PRODUCTIVE:
            self._train(span_s)
        else:
            self._spent.lose(kind if kind == RESTORE else self._cause or kind, span_s)

    def _train(self, span_s: float) -> None:
        """Count seconds in RUNNING."""
        if self._running_as == STARTUP:
            self._spent.lose(self._cause or STARTUP, span_s)
            return
        if span_s > 0:
            self._cause = ""
        paid_s = min(span_s, self._owed_s)
        self._owed_s -= paid_s
        self._trained_s += span_s - paid_s
        if self._running_as == UNKNOWN:
            self._spent.unknown_s += span_s - paid_s
            self._corrections.unknown_s += paid_s
        else:
            self._spent.productive_s += span_s - paid_s
            self._corrections.productive_s += paid_s


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
