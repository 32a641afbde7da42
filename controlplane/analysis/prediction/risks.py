"""Say each day how probable it is that each node fails soon, from what is known by that day.

Three ways, to be compared: the fitted echoes (`echoes.py`), a rule with weights that are written down
(`policy.WEIGHTS_D`), and the baseline: a fault began within the last seven days. Whatever is fitted is fitted
once, to what was known when the training ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.prediction import policy
from controlplane.analysis.prediction.echoes import EchoModel, EchoState, fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.analysis.prediction.history import FaultHistory, Flags, Ints
    from controlplane.analysis.robust import Floats

OURS, WEIGHTED, BASELINE = "echoes", "weighted_rule", "failed_in_last_7_days"


@dataclass(frozen=True, slots=True)
class NodeDays:
    """Risks of nodes that are up: one row per node and day, by day. `risk`: by the name of the way.

    `flagged`: by the baseline. That may be worth nothing: its risks are then alike, or reversed."""

    day: Ints
    node: Ints
    flagged: Flags
    risk: dict[str, Floats]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was learnt until a day."""

    echoes: EchoModel
    weighted_rate: float  # faults per day of a node without a recent fault, by the weighted rule
    baseline: tuple[float, float]  # the probability of nodes that are not flagged, and of those that are


def learn(history: FaultHistory, until: int, horizon_days: int) -> Fitted:
    """Learn from what was known by the day `until`; a label counts when its horizon had passed by then."""
    known = history.known_by(until)
    echoes = fit(history, until)
    rows = _rows(known, range(1, until - horizon_days + 1), horizon_days)
    rate = _weighted_rate(known, until)
    if rows is None:
        overall = echoes.background * horizon_days
        return Fitted(echoes, rate, (overall, overall))
    return Fitted(_scaled(echoes, rows, horizon_days), rate, _shares(rows))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Node-days of the training."""

    echoes: Floats
    flagged: Flags
    failing: Flags


def _rows(known: FaultHistory, days: Sequence[int], horizon_days: int) -> _Rows | None:
    found = [
        (echoes[up], _failed_lately(known, day)[up], known.fails_within(day, horizon_days)[up])
        for day, up, echoes in _days(known, days)
    ]
    return _Rows(*(np.concatenate(column) for column in zip(*found, strict=True))) if found else None


def _scaled(echoes: EchoModel, rows: _Rows, horizon_days: int) -> EchoModel:
    """The model with the strength of echoes that had the least Brier score in the training."""
    models = [replace(echoes, strength=each) for each in policy.STRENGTHS]
    return min(models, key=lambda each: _brier(each.risk(rows.echoes, horizon_days), rows.failing))


def _brier(risk: Floats, failing: Flags) -> float:
    return float(((risk - failing) ** 2).mean())


def _shares(rows: _Rows) -> tuple[float, float]:
    """How often a fault followed, of those that are not flagged and of those that are."""
    overall = float(rows.failing.mean())
    calm, raised = (
        float((rows.failing[these].sum() + policy.CLASS_PRIOR * overall) / (these.sum() + policy.CLASS_PRIOR))
        for these in (~rows.flagged, rows.flagged)
    )
    return calm, raised


def _weighted_rate(known: FaultHistory, until: int) -> float:
    """Faults per day, by days that count as often as the weighted rule says that they are riskier."""
    days = sum(float(_weights(known, day)[known.up(day)].sum()) for day in range(1, until))
    prior = policy.BACKGROUND_PRIOR_FAULTS
    return (prior + len(known.start)) / (prior / policy.BACKGROUND_PRIOR + days)


def walk(history: FaultHistory, fitted: Fitted, days: Sequence[int], horizon_days: int) -> NodeDays:
    """The risks of all nodes that are up, day by day. A day's risk uses nothing after it.

    `days` ascend, and there is at least one."""
    rows = [
        (day, np.flatnonzero(up), echoes[up], _weights(history, day)[up], _failed_lately(history, day)[up])
        for day, up, echoes in _days(history, days)
    ]
    calm, raised = fitted.baseline
    flagged = np.concatenate([row[4] for row in rows])
    return NodeDays(
        np.concatenate([np.full(len(nodes), day) for day, nodes, *_ in rows]),
        np.concatenate([nodes for _, nodes, *_ in rows]),
        flagged,
        {
            OURS: np.concatenate([fitted.echoes.risk(echoes, horizon_days) for _, _, echoes, *_ in rows]),
            WEIGHTED: -np.expm1(
                -fitted.weighted_rate * horizon_days * np.concatenate([row[3] for row in rows])
            ),
            BASELINE: np.where(flagged, raised, calm),
        },
    )


def _days(history: FaultHistory, days: Sequence[int]) -> Iterator[tuple[int, Flags, Floats]]:
    """For each day: which nodes are up, and the echoes of all."""
    order = np.argsort(history.start, kind="stable")
    starts, nodes = history.start[order], history.node[order]
    state, taken, before = EchoState(history.nodes), 0, 0.0
    for day in days:
        state.advance(day - before)
        known = int(np.searchsorted(starts, day, side="right"))
        state.add(nodes[taken:known], day - starts[taken:known])
        taken, before = known, float(day)
        yield day, history.up(day), state.values.copy()


def _weights(history: FaultHistory, day: float) -> Floats:
    """How many times as risky each node is as one without a recent fault, by the weighted rule."""
    ended = (history.end <= day) & (history.end > day - policy.WEIGHTS_D[-1][0])
    ages = day - history.end[ended]
    limits = np.array([limit for limit, _ in policy.WEIGHTS_D])
    weights = np.array([weight for _, weight in policy.WEIGHTS_D])
    found = np.ones(history.nodes)
    np.add.at(found, history.node[ended], weights[np.searchsorted(limits, ages)])
    return found


def _failed_lately(history: FaultHistory, day: float) -> Flags:
    return history.fails_within(day - policy.BASELINE_DAYS, policy.BASELINE_DAYS)
