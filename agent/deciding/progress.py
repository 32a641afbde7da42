"""Detect ranks that make no progress, by the history of their job. No clock, no I/O.

A rank marks every step and every phase on its progress page. The times between two marks, by activity, are
the history of its job on this node; a rank without a mark for a multiple of the usual time is stalled. Slow
is not stalled: the multiple is of a high quantile and never below a floor. Activities that a script declares
(evaluate, compile, ...) have higher floors. Whether a stalled rank is to blame or waits for another one is
not decided here, but by the leader."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOORS: dict[str, float] = {
    "first": 1.0,
    "step": 1.0,
    "data": 10.0,
    "checkpoint": 30.0,
    "compile": 60.0,
    "evaluate": 60.0,
    "after": 60.0,  # the loop over steps is over, the elastic function is not
    "fault": 60.0,  # reported a numeric anomaly, waits for the leader's decision
}
"""The activities that are judged, and their floors as multiples of `HangLimits.floor_s`."""
UNKNOWN_AT_FIRST = ("first", "compile")
"""Until it is known how long these usually take, no floor says it either: their limit is at least
`HangLimits.first_s`."""

BROKEN_OFF = ("none", "after", "fault")
"""What follows a first step that was not completed: it does not tell how long one takes."""

QUANTILE = 0.95
"""This quantile of the gaps in the history is the usual time of an activity."""
HISTORY_LOOKS = 512
"""How many looks back the history of an activity reaches."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """Settings, see AgentSettings.

    `factor`: stalled after this many times the usual time; 0: nothing is ever called stalled. `floor_s`:
    never stalled sooner than this times the activity's floor. `first_s`: the limit of a first step, or of a
    compilation, while no history tells how long one takes."""

    factor: float
    floor_s: float
    first_s: float


@dataclass(frozen=True, slots=True)
class PageReading:
    """What a rank's progress page shows. `since`: the time of its last mark, in s on the clock of `now`."""

    member: str
    job: str
    activity: str
    since: float
    gaps: tuple[tuple[str, float], ...] = ()
    """(activity, seconds) between each two marks made since the last look."""
    limit_s: float = 0.0
    """How long the script allows the current phase; 0: not declared."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """A rank has made no mark for `age_s`, which is past `limit_s`."""

    member: str
    activity: str
    age_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """A stalled rank makes progress again."""

    member: str


@dataclass(slots=True)
class _Rank:
    since: float
    pardon_s: float = 0.0
    """How long the agent itself was stopped since the mark: the rank may have been stopped too."""
    first_s: float = 0.0
    """What is over of its first step: marks cut it where the loop begins, and around declared phases."""

    def whole(self, sight: PageReading) -> list[tuple[str, float]]:
        """The gaps of this look, a first step as one: a part of it says little about the whole."""
        found = []
        following = [*(activity for activity, _ in sight.gaps), sight.activity][1:]
        for (activity, spent), then in zip(sight.gaps, following, strict=True):
            if activity == "first":
                self.first_s += spent
            else:
                found.append((activity, spent))
            if self.first_s and "step" in (activity, then):
                found.append(("first", self.first_s))
                self.first_s = 0.0
            elif then in BROKEN_OFF:
                self.first_s = 0.0
        return found


@dataclass(slots=True)
class _History:
    """The longest gap of each look at one job's ranks on this node, by activity."""

    gaps: dict[str, deque[float]] = field(default_factory=dict)

    def learn(self, gaps: Sequence[tuple[str, float]]) -> None:
        longest: dict[str, float] = {}
        for activity, spent in gaps:
            longest[activity] = max(spent, longest.get(activity, 0.0))
        for activity, spent in longest.items():
            self.gaps.setdefault(activity, deque(maxlen=HISTORY_LOOKS)).append(spent)

    def quantile(self, activity: str) -> float | None:
        known = sorted(self.gaps.get(activity, ()))
        return known[math.ceil(QUANTILE * len(known)) - 1] if known else None


class ProgressWatch:
    """Judges the progress of a node's ranks. Times in s."""

    def __init__(self, limits: HangLimits) -> None:
        self._limits = limits
        self._ranks: dict[str, _Rank] = {}
        self._jobs: dict[str, _History] = {}
        self._now = -math.inf

    @property
    def look_every_s(self) -> float:
        """How often to look: well within the floor, and soon enough for a person who watches."""
        return min(0.25, self._limits.floor_s / 4)

    def begin(self, now: float) -> None:
        """Begin a round of looks at time `now`.

        After a pause in which the agent was stopped, every rank gets that time back."""
        gap = now - self._now
        if 4 * self.look_every_s + 1.0 < gap < math.inf:
            for rank in self._ranks.values():
                rank.pardon_s += gap
        self._now = now

    def look(self, sight: PageReading, reported: bool) -> Stalled | Resumed | None:
        """Take one look at a rank and return what changed. `reported`: it has been reported as stalled
        already."""
        rank = self._ranks.setdefault(sight.member, _Rank(sight.since))
        history = self._jobs.setdefault(sight.job, _History())
        history.learn(rank.whole(sight))
        if sight.since != rank.since:
            rank.since, rank.pardon_s = sight.since, 0.0
        age_s, limit_s = self._now - sight.since, self.limit_s(sight)
        stalled = age_s - rank.pardon_s >= limit_s
        if stalled == reported:
            return None
        return Stalled(sight.member, sight.activity, age_s, limit_s) if stalled else Resumed(sight.member)

    def limit_s(self, sight: PageReading) -> float:
        """How long the rank's current activity may take, in s; infinity when it is not judged.

        The script's own limit goes first; then max(floor, factor * usual time)."""
        floor = FLOORS.get(sight.activity)
        if floor is None or not self._limits.factor:
            return math.inf
        if sight.limit_s > 0:
            return sight.limit_s
        usual = self._jobs[sight.job].quantile(sight.activity) if sight.job in self._jobs else None
        least_s = self._limits.first_s if usual is None and sight.activity in UNKNOWN_AT_FIRST else 0.0
        return max(least_s, floor * self._limits.floor_s, self._limits.factor * (usual or 0.0))

    def forget(self, members: set[str], jobs: set[str]) -> None:
        """Forget all members and jobs but these."""
        self._ranks = {name: rank for name, rank in self._ranks.items() if name in members}
        self._jobs = {name: history for name, history in self._jobs.items() if name in jobs}
