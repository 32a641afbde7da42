"""Remember how a job's loss and step time went, in a bounded number of points. Pure.

A curve that is full is thinned: each two neighbours become one point with their mean, and from then on a
point has twice as many values. So a curve always covers all of its time, finely when that is short. A value
that is not a finite number is a break: no line goes through it, and a mean with a break is a break."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.analysis.live.watch import LiveDiagnosis

POINTS_MAX = 720
"""Points of one curve: an hour with one every 5 s."""


class Curve:
    """Points of time (Unix time, s) and value; NaN: a break. Times ascend."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points_max, self._each = points_max, 1
        self._points: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []  # fewer than a point has

    def add(self, at_s: float, value: float) -> None:
        """Add a value, the newest."""
        self._waiting.append((at_s, value if math.isfinite(value) else math.nan))
        if len(self._waiting) < self._each:
            return
        self._points.append(_mean(self._waiting))
        self._waiting = []
        if len(self._points) >= self._points_max:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_mean(list(pair)) for pair in pairs]
            self._each *= 2

    def row(self) -> dict[str, Any]:
        """Return the curve as plain data; None: a break. `values_each`: how many values a point has."""
        shown = [*self._points, *([_mean(self._waiting)] if self._waiting else [])]
        return {
            "at_s": [round(at_s, 2) for at_s, _ in shown],
            "values": [None if math.isnan(value) else float(f"{value:.6g}") for _, value in shown],
            "values_each": self._each,
        }


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the point of several: the time of the newest, and the mean of the values. Each value is divided
    first, since the sum of large ones need not be finite."""
    return points[-1][0], math.fsum(value / len(points) for _, value in points)


class JobCurves:
    """The curves of one job, over all of its generations since this leader began."""

    def __init__(self) -> None:
        self._step_s, self._loss = Curve(), Curve()

    def take(self, found: LiveDiagnosis) -> None:
        """Take in a window. One in which no step was made, or no loss was measured, adds no point there."""
        if found.loss.steps > 0:
            self._step_s.add(found.ended_s, found.loss.step_s)
        if found.numbers is not None:
            self._loss.add(found.ended_s, found.numbers.loss)

    def rows(self) -> dict[str, Any]:
        """Return the curves as plain data, by name."""
        return {"step_s": self._step_s.row(), "loss": self._loss.row()}
