"""Divide the time of a step into phases, also of a step that was not measured.

A measured step is divided exactly. The time of any other step, without the waits that are measured in each,
is divided like the measured steps before it; the newest counts most. A step counts by its length, because an
optimizer may step every k-th time; but one alone that takes very long (it compiles, or evaluates) says
nothing about others, and does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.anatomy import policy

if TYPE_CHECKING:
    from collections.abc import Sequence


class Division:
    """The proportions in which the time of measured steps was spent. Phases are indices.

    `rates`: of each phase that has a share, and that share; `cpu_rate`: CPU time per time. What rounding
    leaves is for the caller to place."""

    def __init__(self, phases: int) -> None:
        self._weights, self._cpu = [0.0] * phases, 0.0
        self._whole, self._steps = 0.0, 0.0  # of the weights, and of how many steps they are
        self._long = False  # the newest step was very long, and is left out
        self.rates: list[tuple[int, float]] = []
        self.cpu_rate = 0.0

    def learn(
        self, spent_ns: Sequence[float], cpu_ns: float, *, without: Sequence[int], anew: bool = False
    ) -> None:
        """Learn from a measured step: what each phase took, and its CPU time. Some phases do not count.

        `anew`: the steps before it say nothing about those after it."""
        own = sum(spent for phase, spent in enumerate(spent_ns) if phase not in without)
        if own <= 0:
            return
        usual = own if anew or not self._steps else self._whole / self._steps
        counted = min(1.0, policy.LONG_STEP * usual / own)
        self._long = counted < 1.0 and not self._long
        if self._long:
            return
        kept = 0.0 if anew else policy.DECAY * min(1.0, policy.LONG_STEP * own / usual)
        for phase, spent in enumerate(spent_ns):
            weight = 0.0 if phase in without else kept * self._weights[phase] + counted * spent
            self._weights[phase] = weight
        self._cpu = kept * self._cpu + counted * cpu_ns
        self._whole = kept * self._whole + counted * own
        self._steps = 1.0 if anew else policy.DECAY * self._steps + 1.0
        self.rates = [(phase, weight / self._whole) for phase, weight in enumerate(self._weights) if weight]
        self.cpu_rate = self._cpu / self._whole
