"""Choose how many steps lie between two snapshots (`--snapshot-every auto`).

Where ranks hold different parts of the state, a rank that dies costs the steps since the newest snapshot. So
snapshots are taken as often as they cost little: `cost_s / (every * step_s)` is the share of the time that
they take. Where every rank holds the whole state, a dead rank costs no step, and nothing is gained by more of
them.

The ranks must take snapshots of the same steps. So each only proposes a number, and all use the largest
(`agreement.snapshot_turns`). A rank that has measured too little, like one that has just replaced another,
leaves it to the others. While no rank has measured enough, they look: snapshots of some of the first steps
are due, too. All see the same proposals, so all look alike. Every number divides the largest allowed one:
what was due with that stays due. No clock: times are arguments, in s."""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COST_SHARE_MAX = 0.03
"""More of the time than this, and snapshots are taken less often."""
COST_SHARE_FINER = 0.02
"""Less than this, and they may be taken more often. Between the two nothing changes, so that noise does not
move the number to and fro."""
UNMEASURED = 0
"""What a rank proposes that has measured too little."""
LOOKS = 10
"""In so many of the first steps of a generation the ranks look, unless one of them has measured enough: room
for snapshots may come some steps late. Later, in the two steps after each of the largest number."""
_KEPT = 21
_STEPS_MIN = 3
_COSTS_MIN = 2


class Spacing:
    """How many steps lie between two snapshots of this rank, and what it has measured of them.

    - `every_max`: the number that the job asks for; 0: no snapshots are taken.
    - `automatic`: whether a smaller one may be used.
    - `multiple_of`: every number is a multiple of this. Where a check of replicas must precede each snapshot:
      the steps between two checks."""

    def __init__(self, every_max: int, *, automatic: bool = False, multiple_of: int = 1) -> None:
        self.every = self.every_max = every_max
        self._allowed = allowed(every_max, multiple_of) if automatic and every_max else (every_max,)
        self._steps_s: deque[float] = deque(maxlen=_KEPT)
        self._costs_s: deque[float] = deque(maxlen=_KEPT)
        self._exchanges_s: deque[float] = deque(maxlen=_KEPT)
        self._begun_at: float | None = None  # when the step that runs began; None: not known
        self._chosen = every_max  # what the ranks have chosen last, maybe in an earlier generation
        self._begun_after: int | None = None  # complete steps at the first proposals of the generation
        self._looking = False  # no rank has measured enough yet
        self._news = ""  # a change that the next report of a snapshot tells

    @property
    def automatic(self) -> bool:
        """Whether there is anything to choose."""
        return len(self._allowed) > 1

    def due(self, completed: int) -> bool:
        """Whether a snapshot is due after so many complete steps."""
        return self.every > 0 and (completed % self.every == 0 or self._is_look(completed))

    def due_in_any_case(self, completed: int) -> bool:
        """Whether one would be due with the largest number, too."""
        return self.every_max > 0 and completed % self.every_max == 0

    def restart(self) -> None:
        """Begin again with the largest number: in a new generation nothing is agreed upon yet. What was
        measured is kept, so after its first step these ranks know what to propose."""
        self.every, self._begun_at = self.every_max, None
        self._begun_after, self._looking = None, False

    def step_begins(self, now: float) -> None:
        """All that follows a step is done: the next one begins."""
        self._begun_at = now

    def step_ends(self, now: float) -> None:
        """A step is complete; what follows it is no part of it."""
        if self._begun_at is not None:
            self._steps_s.append(now - self._begun_at)

    def snapshot_took(self, seconds: float) -> None:
        """Record how long a snapshot kept this rank from training."""
        self._costs_s.append(seconds)

    def exchange_took(self, seconds: float) -> None:
        """Record how long the ranks took to agree on a snapshot, without the time that they waited for the
        slowest of them: that they would do in the step otherwise."""
        self._exchanges_s.append(seconds)

    def proposal(self) -> int:
        """The number of steps that this rank would choose; UNMEASURED: it cannot say yet."""
        if not self.automatic:
            return self.every_max
        if not self._is_measured:
            return UNMEASURED
        step_s, cost_s = self._measured()
        for every in self._allowed:
            share_max = COST_SHARE_FINER if every < self._chosen else COST_SHARE_MAX
            if cost_s <= share_max * every * step_s:
                return every
        return self.every_max

    def choose(self, proposals: Sequence[int], completed: int, *, alone: bool) -> str:
        """Use the largest number of the ranks' proposals after so many complete steps, or go on looking.
        Returns what has changed, in words; "": nothing.

        `alone`: some rank holds a part of the state that no other rank is known to hold. If not, nothing is
        gained by more snapshots than the job asks for."""
        if self._begun_after is None:
            self._begun_after = completed
        known = [every for every in proposals if every != UNMEASURED]
        self._looking = alone and not known
        if not (alone and known):
            return self._use(self.every_max, completed)
        self._chosen = max(known)
        return self._use(self._chosen, completed)

    def _use(self, every: int, completed: int) -> str:
        if every == self.every:
            return ""
        self.every = every
        often = "every step" if every == 1 else f"every {every} steps"
        return f"a snapshot after {often} from step {completed} on (--snapshot-every auto): {self._reason()}"

    def _is_look(self, completed: int) -> bool:
        """Whether a snapshot is due because no rank has measured enough."""
        if not self._looking or self._begun_after is None or completed % self._allowed[0]:
            return False
        early = completed <= self._begun_after + LOOKS * self._allowed[0]
        return early or completed % self.every_max <= _COSTS_MIN * self._allowed[0]

    def tell(self, news: str) -> None:
        """Have the next report of a snapshot tell this."""
        self._news = news

    def take_news(self) -> str:
        """What that report is to tell; "": nothing. Once."""
        news, self._news = self._news, ""
        return news

    def _reason(self) -> str:
        """What this rank has measured, in words."""
        if not self._is_measured:
            return "measured by the other ranks"
        step_s, cost_s = self._measured()
        return f"a snapshot takes {cost_s * 1e3:.2f} ms here, a step {step_s * 1e3:.1f} ms"

    @property
    def _is_measured(self) -> bool:
        return len(self._steps_s) >= _STEPS_MIN and len(self._costs_s) >= _COSTS_MIN

    def _measured(self) -> tuple[float, float]:
        """How long a step and a snapshot take. Of two snapshots the quicker one: the first is the slowest."""
        exchange_s = statistics.median(self._exchanges_s) if self._exchanges_s else 0.0
        return statistics.median(self._steps_s), statistics.median_low(self._costs_s) + exchange_s


def allowed(every_max: int, multiple_of: int = 1) -> tuple[int, ...]:
    """The divisors of `every_max` that are multiples of `multiple_of`, ascending; always `every_max`."""
    found = (n for n in range(1, every_max) if every_max % n == 0 and n % multiple_of == 0)
    return (*found, every_max)
