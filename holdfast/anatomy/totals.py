"""Add the time of steps to the sums that a rank shows on its progress page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.anatomy.phases import COMMUNICATION, FORWARD, OTHER, REDUCTION, WAITS
from holdfast.ipc.step_times import FLOPS_UNIT, NAMES, StepSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.anatomy.division import Division

PLACE = {name: index for index, name in enumerate(NAMES)}
"""Where each field of StepSums is in the values."""
_FIRST = PLACE["data_ns"]  # the phases DATA to OTHER lie in this order
_SUM_OF = [_FIRST + phase for phase in (*range(OTHER + 1), FORWARD, COMMUNICATION, OTHER)]
_WALL, _CPU, _TOKENS, _FLOPS = (PLACE[name] for name in ("wall_ns", "cpu_ns", "tokens", "flops"))


class StepTotals:
    """The sums, as `values` in the order of NAMES. They go on from those of an earlier session."""

    __slots__ = ("_flops", "values")

    def __init__(self, start: StepSums | None) -> None:
        self.values = [getattr(start or StepSums(), name) for name in NAMES]
        self._flops = 0.0  # of all steps

    def declare(self, tokens: int, flops: float) -> None:
        """Add what the script has declared in a step."""
        self.values[_TOKENS] += tokens
        self._flops += flops
        self.values[_FLOPS] = int(self._flops / FLOPS_UNIT)

    def add_measured(self, wall: int, spent: Sequence[int], cpu: int) -> None:
        """Add steps as they were measured. Times in ns; `spent`: by phase."""
        values, left = self.values, wall
        values[_WALL] += wall
        for phase in range(OTHER):
            values[_SUM_OF[phase]] += spent[phase]
            left -= spent[phase]
        values[_SUM_OF[COMMUNICATION]] += spent[REDUCTION]
        values[_SUM_OF[OTHER]] += left - spent[REDUCTION]
        values[_CPU] += cpu

    def add_divided(
        self, wall: int, spent: Sequence[int], division: Division, waits: Sequence[int] = WAITS
    ) -> None:
        """Add steps whose waits alone were measured: the rest is divided like that of steps that were."""
        values, left = self.values, wall
        values[_WALL] += wall
        for phase in waits:
            values[_SUM_OF[phase]] += spent[phase]
            left -= spent[phase]
        total = left
        for phase, rate in division.rates:
            part = int(total * rate)
            values[_SUM_OF[phase]] += part
            left -= part
        values[_CPU] += int(total * division.cpu_rate)
        values[_SUM_OF[OTHER]] += left
