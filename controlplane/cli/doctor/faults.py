"""Predict from a history of faults which nodes fail next, and show how good such predictions were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.analysis.prediction import forecast, policy, risks
from controlplane.cli.errors import UsageError
from controlplane.cli.questions.tables import NOTHING, plain

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.analysis.prediction.forecast import Forecast, Score
    from controlplane.analysis.prediction.history import FaultHistory
    from controlplane.cli.doctor.readers.fault_file import AskedPrediction

RISKS_SHOWN = 10
"""The most nodes that are shown to people, of the last day; programs get all of every day."""
SHOWN = (
    "roc_auc",
    "average_precision",
    "brier",
    "as_many_as_baseline/precision",
    "as_many_as_baseline/recall",
)
"""The scores that are shown to people."""
LESS_IS_BETTER = ("brier",)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A forecast, and what it was asked for."""

    asked: AskedPrediction
    forecast: Forecast

    @property
    def history(self) -> FaultHistory:
        """What was learnt from, and what was predicted."""
        return self.asked.history


def diagnose(path: Path, asked: AskedPrediction) -> Prediction:
    """The forecast. Raises UsageError."""
    chance = np.random.default_rng(asked.seed)
    try:
        found = forecast.predict(asked.history, asked.train_until, asked.horizon_days, chance)
    except forecast.PredictionError as error:
        raise UsageError(f"{path}: {error}") from error
    return Prediction(asked, found)


def data(found: Prediction) -> dict[str, Any]:
    """For programs."""
    fitted, rows, names = found.forecast.fitted, found.forecast.node_days, found.history.node_names()
    return {
        "nodes": found.history.nodes,
        "nodes_named": len(found.history.names),
        "faults": len(found.history.start),
        "observed_until_day": found.history.observed_until,
        "train_until_day": found.asked.train_until,
        "horizon_days": found.asked.horizon_days,
        "seed": found.asked.seed,
        "notes": list(found.history.notes),
        "model": {
            "kind": risks.OURS,
            "faults_learnt_from": fitted.echoes.faults,
            "background_per_node_day": fitted.echoes.background,
            "echo_strength": fitted.echoes.strength,
            "echoes": [
                {"time_constant_days": tau, "faults_per_fault": alpha}
                for tau, alpha in zip(policy.ECHOES_D, fitted.echoes.alphas, strict=True)
            ],
        },
        "scored": _scored(found),
        "no_better_than_baseline": no_better(found.forecast),
        "risks": [
            {"day": int(day), "node": names[node], "risk": float(f"{risk:.6g}")}
            for day, node, risk in zip(rows.day, rows.node, rows.risk[risks.OURS], strict=True)
        ],
    }


def _scored(found: Prediction) -> dict[str, Any] | None:
    scored = found.forecast.scored
    if scored is None:
        return None
    return {
        "first_day": scored.first_day,
        "last_day": scored.last_day,
        "node_days": scored.node_days,
        "node_days_failing": scored.failing,
        "base_rate": scored.base_rate,
        "confidence": policy.CONFIDENCE,
        "scores": {way: _nested(each) for way, each in scored.scores.items()},
        "minus_baseline": {way: _nested(each) for way, each in scored.differences.items()},
    }


def _nested(scores: dict[str, Score]) -> dict[str, Any]:
    """Scores as an object; those of an operating point, `point/score`, in an object of their own."""
    found: dict[str, Any] = {}
    for name, each in scores.items():
        *point, last = name.split("/")
        inner = found.setdefault("operating_points", {}).setdefault(point[0], {}) if point else found
        inner[last] = {
            "value": each.value, "interval_by_nodes": each.by_nodes, "interval_by_weeks": each.by_days
        }  # fmt: skip
    return found


def no_better(found: Forecast) -> list[str] | None:
    """The scores in which ours does no better than the baseline. None: nothing could be scored."""
    if found.scored is None:
        return None
    return [
        name
        for name, each in found.scored.differences[risks.OURS].items()
        if each.value is not None and (each.value >= 0.0 if name in LESS_IS_BETTER else each.value <= 0.0)
    ]


def text(found: Prediction) -> str:
    """For people: the nodes with the highest risk now, and how good such risks were."""
    return "\n\n".join(filter(None, (_riskiest(found), _quality(found), "\n".join(found.history.notes))))


def _riskiest(found: Prediction) -> str:
    rows, names = found.forecast.node_days, found.history.node_names()
    last = int(rows.day[-1])
    today = np.flatnonzero(rows.day == last)
    risk = rows.risk[risks.OURS]
    order = today[np.argsort(-risk[today], kind="stable")][:RISKS_SHOWN]
    table = plain(("NODE", "RISK"), [(names[rows.node[at]], f"{risk[at]:.1%}") for at in order])
    return (
        f"day {last}: nodes most likely to fail within {found.asked.horizon_days} days, of {len(today)} that "
        f"are up (median {np.median(risk[today]):.1%})\n{table}"
    )


def _quality(found: Prediction) -> str:
    scored = found.forecast.scored
    if scored is None:
        return (
            f"not scored: no day after {found.asked.train_until} is followed by {found.asked.horizon_days} "
            "days of history"
        )
    headings = ("SCORE", *(way.upper() for way in scored.scores))
    rows = [(name, *(_shown(each[name]) for each in scored.scores.values())) for name in SHOWN]
    head = (
        f"days {scored.first_day} to {scored.last_day}: a new fault follows {scored.base_rate:.2%} of "
        f"{scored.node_days} node-days (intervals: {policy.CONFIDENCE:.0%}, resampled by nodes)"
    )
    less = no_better(found.forecast)
    verdict = (
        f"no better than the baseline in: {', '.join(less)}" if less else "better than the baseline in all"
    )
    return f"{head}\n{plain(headings, rows)}\n{verdict}"


def _shown(score: Score) -> str:
    if score.value is None:
        return NOTHING
    if score.by_nodes is None:
        return f"{score.value:.4f}"
    return f"{score.value:.4f} ({score.by_nodes[0]:.4f} to {score.by_nodes[1]:.4f})"
