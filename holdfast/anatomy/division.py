"""Divide the time of a step into phases, also of a step that was not measured.

A measured step is divided exactly. The time of any other step, without the waits that are measured in each,
is divided like the measured steps before it; the newest counts most."""

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
        self.rates: list[tuple[int, float]] = []
        self.cpu_rate = 0.0

    def learn(self, spent_ns: Sequence[float], cpu_ns: float, *, without: Sequence[int]) -> None:
        """Learn from a measured step: what each phase took, and its CPU time. Some phases do not count."""
        kept, whole = policy.DECAY, 0.0
        for phase, spent in enumerate(spent_ns):
            weight = 0.0 if phase in without else kept * self._weights[phase] + spent
            self._weights[phase] = weight
            whole += weight
        self._cpu = kept * self._cpu + cpu_ns
        if whole > 0:
            self.rates = [(phase, weight / whole) for phase, weight in enumerate(self._weights) if weight]
            self.cpu_rate = self._cpu / whole
