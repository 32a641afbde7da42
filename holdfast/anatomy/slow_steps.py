"""Notice steps that take much longer than usual, and write their phases to the progress page."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.anatomy.totals import PLACE
from holdfast.ipc.pages.slow_steps import KEPT, NAMES, SlowStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.ipc.pages.slow_steps import SlowStepsPage

RATIO, LEAST_NS = 2.0, 5_000_000
"""A step is slow that takes this many times as long as usual, and so much longer."""
NEVER_NS = 1 << 62
WARM = 10
"""Before the sums were written so often, nothing is usual."""
DECAY = 0.05
_PHASES = tuple(name for name in NAMES if name.endswith("_ns") and name not in ("usual_ns", "wall_ns"))
_WALL, _STEPS = PLACE["wall_ns"], PLACE["steps"]


class SlowStepWatch:
    """The slow steps of one session. A step that takes longer than `above_ns` is one.

    What is usual is a mean in which one slow step counts as one that just is none, so it follows a change of
    pace. The first steps of a loop are never slow: others are compiled, and memory is found, in them."""

    __slots__ = (
        *("_before", "_count", "_looks", "_newest", "_page", "_seen", "_usual_before_ns", "_usual_ns"),
        "above_ns",
    )

    def __init__(self, page: SlowStepsPage | None, sums: Sequence[int]) -> None:
        self._page, self._looks, self._usual_ns = page, 0, 0.0
        self._count, newest = page.read() if page is not None else (0, [])
        self._newest: deque[SlowStep] = deque(newest, KEPT)
        self._seen = sums[_WALL], sums[_STEPS]
        self._before, self._usual_before_ns = list(sums), 0
        self.above_ns = NEVER_NS

    def begin(self) -> None:
        """A loop over steps begins."""
        self.above_ns = NEVER_NS

    def learn(self, sums: Sequence[int]) -> None:
        """The sums were written (the values of StepTotals): learn what a step takes now."""
        wall_ns, steps = sums[_WALL] - self._seen[0], sums[_STEPS] - self._seen[1]
        self._seen = sums[_WALL], sums[_STEPS]
        if self._page is None or steps <= 0:
            return
        mean_ns = wall_ns / steps
        self._looks += 1
        if self._looks <= WARM:
            self._usual_ns += (mean_ns - self._usual_ns) / self._looks
        else:
            self._usual_ns += DECAY * (min(mean_ns, RATIO * self._usual_ns) - self._usual_ns)
            self.above_ns = int(max(RATIO * self._usual_ns, self._usual_ns + LEAST_NS))

    def ended(self, sums: Sequence[int]) -> None:
        """A slow step has ended: note the sums without it, and what was usual before it."""
        self._before, self._usual_before_ns = list(sums), int(self._usual_ns)

    def keep(self, step: int, generation: int, sums: Sequence[int]) -> None:
        """Keep the slow step that has ended. `sums`: with it."""
        before = self._before
        spent = {name: sums[PLACE[name]] - before[PLACE[name]] for name in _PHASES}
        wall_ns = sums[_WALL] - before[_WALL]
        self._newest.append(SlowStep(step, generation, self._usual_before_ns, wall_ns, **spent))
        self._count += 1
        if self._page is not None:
            self._page.write(self._count, self._newest)
