"""Predict the faults of each node day by day, and score that on what then happened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.prediction import policy, risks
from controlplane.analysis.prediction.resampling import intervals
from controlplane.analysis.prediction.scores import ranked, scores, top

if TYPE_CHECKING:
    from controlplane.analysis.prediction.history import FaultHistory, Flags
    from controlplane.analysis.prediction.resampling import Interval
    from controlplane.analysis.prediction.scores import Ranked
    from controlplane.analysis.robust import Floats


class PredictionError(ValueError):
    """A prediction that cannot be made; the message names the flag and the remedy."""


@dataclass(frozen=True, slots=True)
class Score:
    """One score. None: not known, since nobody failed, or nothing was flagged."""

    value: float | None
    by_nodes: Interval | None  # resampled by nodes
    by_days: Interval | None  # resampled by weeks


@dataclass(frozen=True, slots=True)
class Scored:
    """How good risks were on the days whose horizon is over. `differences`: to the baseline, by way."""

    first_day: int
    last_day: int
    node_days: int
    failing: int  # node-days that a new fault followed
    scores: dict[str, dict[str, Score]]  # by way, then by name
    differences: dict[str, dict[str, Score]]

    @property
    def base_rate(self) -> float:
        """The share of node-days that a new fault followed."""
        return self.failing / self.node_days


@dataclass(frozen=True, slots=True)
class Forecast:
    """Risks after the training, and how good they were. `scored`: None when no horizon is over."""

    fitted: risks.Fitted
    node_days: risks.NodeDays
    scored: Scored | None


def predict(
    history: FaultHistory, train_until: int, horizon_days: int, chance: np.random.Generator
) -> Forecast:
    """Learn until a day, and predict on each whole day after it. Raises PredictionError."""
    last = math.floor(history.observed_until)
    days = range(train_until + 1, last + 1)
    if not days:
        fix = f"give --train-until {last - 1} or less" if last > 1 else "give a history of two days or more"
        raise PredictionError(f"the history ends on day {history.observed_until:.4g}: {fix}")
    if last * history.nodes > policy.NODE_DAYS_MAX:
        raise PredictionError(
            f"{last} days of {history.nodes} nodes are more than {policy.NODE_DAYS_MAX} risks: give the "
            "history of fewer nodes, or of fewer days"
        )
    fitted = risks.learn(history, train_until, horizon_days)
    rows = risks.walk(history, fitted, days, horizon_days)
    over = [day for day in days if day + horizon_days <= history.observed_until]
    kept = np.isin(rows.day, over)
    scored = _score(history, rows, kept, horizon_days, chance) if kept.any() else None
    return Forecast(fitted, rows, scored)


def _score(
    history: FaultHistory,
    rows: risks.NodeDays,
    kept: Flags,
    horizon_days: int,
    chance: np.random.Generator,
) -> Scored:
    day, node = rows.day[kept], rows.node[kept]
    edges = np.flatnonzero(np.r_[True, day[1:] != day[:-1]])
    failing = np.concatenate(
        [
            history.fails_within(int(day[begin]), horizon_days)[nodes]
            for begin, nodes in zip(edges, np.split(node, edges[1:]), strict=True)
        ]
    )
    counts = np.diff(np.r_[edges, len(day)]).astype(np.float64)
    flagged = rows.flagged[kept].astype(np.float64)
    as_many = np.add.reduceat(flagged, edges)
    prepared = {}
    for way, values in rows.risk.items():
        risk = values[kept]
        place = flagged if way == risks.BASELINE else risk
        alarms = {
            f"top_{100 * share:g}_percent": top(day, place, share * counts) for share in policy.TOP_SHARES
        }
        alarms["as_many_as_baseline"] = top(day, place, as_many)
        prepared[way] = ranked(place, risk, failing, alarms)
    block = (day - day[0]) // max(policy.BLOCK_DAYS, horizon_days)
    drawn = intervals(lambda weights: _all(prepared, weights), node, chance)
    weeks = intervals(lambda weights: _all(prepared, weights), block, chance)
    whole = _all(prepared, np.ones(len(day)))
    found = {name: Score(_known(value), drawn[name], weeks[name]) for name, value in whole.items()}
    return Scored(
        int(day[0]), int(day[-1]), len(day), int(failing.sum()),
        {way: _part(found, f"{way}:") for way in prepared},
        {way: _part(found, f"{way}-baseline:") for way in prepared if way != risks.BASELINE},
    )  # fmt: skip


def _all(prepared: dict[str, Ranked], weights: Floats) -> dict[str, float]:
    """All scores of all ways, and their differences to the baseline, in one resample."""
    by_way = {way: scores(each, weights) for way, each in prepared.items()}
    baseline = by_way[risks.BASELINE]
    found = {f"{way}:{name}": value for way, values in by_way.items() for name, value in values.items()}
    return found | {
        f"{way}-baseline:{name}": value - baseline[name]
        for way, values in by_way.items()
        if way != risks.BASELINE
        for name, value in values.items()
    }


def _part(found: dict[str, Score], prefix: str) -> dict[str, Score]:
    return {name.removeprefix(prefix): each for name, each in found.items() if name.startswith(prefix)}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
