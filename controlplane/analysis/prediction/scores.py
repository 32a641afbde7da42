"""Score risks against what happened: ROC AUC, average precision, Brier, precision and recall.

All scores take a weight per row, so that a resample is nothing but other weights. Equal risks are taken as
one: their rows come in no order, and what a threshold within them finds is what it finds on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from controlplane.analysis.prediction.history import Flags, Ints
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class Ranked:
    """Risks in descending order, ready to be scored many times. `groups`: where each group of equal ones
    begins; `alarms`: for each operating point, with which share each row is flagged."""

    order: Ints
    groups: Ints
    failing: Floats  # in order of the rows
    squares: Floats  # squared errors, in order of the rows
    alarms: dict[str, Floats]


def ranked(place: Floats, risk: Floats, failing: Flags, alarms: dict[str, Floats]) -> Ranked:
    """Prepare the scores of risks. `place`: what they are ranked by, the highest first."""
    order = np.argsort(-place, kind="stable")
    descending = place[order]
    groups = np.flatnonzero(np.r_[True, descending[1:] != descending[:-1]])
    truth = failing.astype(np.float64)
    return Ranked(order, groups, truth, (risk - truth) ** 2, alarms)


def scores(of: Ranked, weights: Floats) -> dict[str, float]:
    """All scores, by name. NaN where rows say nothing: nobody failed, or everybody, or nothing flagged."""
    found = _orders(of, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        found["brier"] = float(np.divide((weights * of.squares).sum(), weights.sum()))
        caught_all = (weights * of.failing).sum()
        for name, flagged in of.alarms.items():
            caught = (weights * flagged * of.failing).sum()
            found[f"{name}/precision"] = float(np.divide(caught, (weights * flagged).sum()))
            found[f"{name}/recall"] = float(np.divide(caught, caught_all))
    return found


def _orders(of: Ranked, weights: Floats) -> dict[str, float]:
    """The two scores that depend on the order alone."""
    both = weights[of.order]
    bad = np.add.reduceat(both * of.failing[of.order], of.groups)
    everything = np.add.reduceat(both, of.groups)
    good = everything - bad
    found_bad, below = np.cumsum(bad), good.sum() - np.cumsum(good)
    with np.errstate(invalid="ignore", divide="ignore"):
        area = np.divide((bad * (below + 0.5 * good)).sum(), bad.sum() * good.sum())
        precision = np.where(bad > 0, found_bad / np.cumsum(everything), 0.0)
        average = np.divide((bad * precision).sum(), bad.sum())
    return {"roc_auc": float(area), "average_precision": float(average)}


def top(day: Ints, risk: Floats, counts: Floats) -> Floats:
    """Flag the highest risks of each day. `counts`: how many, in the order of the days.

    Where more rows are equal than may be flagged, each of them is flagged in part."""
    found = np.zeros(len(day))
    edges = np.flatnonzero(np.r_[True, day[1:] != day[:-1], True])
    for begin, end, count in zip(edges[:-1], edges[1:], counts, strict=True):
        values = risk[begin:end]
        if count >= len(values):
            found[begin:end] = 1.0
            continue
        if count <= 0:
            continue
        limit = np.partition(values, -int(np.ceil(count)))[-int(np.ceil(count))]
        above, level = values > limit, values == limit
        found[begin:end] = above + level * ((count - above.sum()) / level.sum())
    return found
