"""Model faults that call forth further ones of the same node, and fit that model to a history.

A node fails at a rate that is the sum of a background, the same for all nodes, and of an echo of each of its
earlier faults. Echoes fade: with each time constant tau of `policy.ECHOES_D` a fault adds
`alpha / tau * exp(-age / tau)`, so that `alpha` is the number of further faults which it would cause on a
node that is always up (a self-exciting point process; Hawkes, Biometrika 58, 1971). While a node is down it
cannot fail, and echoes fade all the same: a node that was repaired for weeks is like a new one.

Background and alphas are fitted by expectation and maximisation (Veen and Schoenberg, J. Am. Stat. Assoc.
103, 2008): each fault is shared out among what could have caused it, in proportion to the rates of that
moment; each rate is then what it caused, by the exposure. Gamma priors shrink the rates where there is little
history.

What was tried on a published trace, and left out because it made the ranking of later days worse: rates for
each kind of fault, a background for each node, the present rate of the whole fleet, nodes that failed
together, and a logistic regression on all of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.prediction import policy

if TYPE_CHECKING:
    from controlplane.analysis.prediction.history import FaultHistory, Ints
    from controlplane.analysis.robust import Floats

TAUS = np.array(policy.ECHOES_D)
PRIOR_RATES = np.array([policy.BACKGROUND_PRIOR, *(policy.ECHO_PRIOR for _ in policy.ECHOES_D)])
"""What rates are without any history: the background, then each alpha."""


@dataclass(frozen=True, slots=True)
class EchoModel:
    """Fitted rates. `background`: faults per node and day; `alphas`: faults that a fault causes, by time
    constant; `faults`: how many it was fitted to; `strength`: by how much echoes are scaled in `risk`."""

    background: float
    alphas: tuple[float, ...]
    faults: int
    strength: float = 1.0

    def risk(self, echoes: Floats, days: float) -> Floats:
        """The probability to fail within so many days, of nodes that are up: (node,), from (node, constant).

        Further faults that the first one causes do not matter: it is the first that counts."""
        shares = self.strength * np.array(self.alphas) * (1.0 - np.exp(-days / TAUS))
        found: Floats = -np.expm1(-(self.background * days + echoes @ shares))
        return found


class EchoState:
    """The echoes that nodes have at a moment: the sum of exp(-age / tau) over their faults."""

    def __init__(self, nodes: int) -> None:
        self.values: Floats = np.zeros((nodes, len(TAUS)))

    def advance(self, days: float) -> None:
        """Let time pass."""
        self.values *= np.exp(-days / TAUS)

    def add(self, nodes: Ints, ages: Floats) -> None:
        """Take in faults that began so many days ago."""
        np.add.at(self.values, nodes, np.exp(-ages[:, None] / TAUS))


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a history says of the rates. `echoes`: at each fault's beginning, (fault, constant)."""

    echoes: Floats
    exposure_days: float  # of all nodes while up
    echo_exposure: Floats  # faults that each constant would have caused with alpha 1, by constant


def fit(history: FaultHistory, day: float) -> EchoModel:
    """Fit the rates to what was known by a day."""
    known = history.known_by(day)
    seen = _observe(known, day)
    rates = PRIOR_RATES
    prior = np.array([policy.BACKGROUND_PRIOR_FAULTS, *(policy.ECHO_PRIOR_FAULTS * PRIOR_RATES[1:])])
    exposure = np.array([seen.exposure_days, *seen.echo_exposure])
    densities = np.column_stack([np.ones(len(seen.echoes)), seen.echoes / TAUS])
    for _ in range(policy.FIT_ROUNDS):
        parts = densities * rates
        caused = (parts / parts.sum(axis=1, keepdims=True)).sum(axis=0)
        before, rates = rates, (prior + caused) / (prior / PRIOR_RATES + exposure)
        if np.abs(rates / before - 1.0).max() < policy.FIT_CHANGE:
            break
    return EchoModel(float(rates[0]), tuple(float(each) for each in rates[1:]), len(known.start))


def _observe(known: FaultHistory, day: float) -> _Observed:
    """Walk through the faults of each node, in order."""
    order = np.lexsort((known.start, known.node))
    node, start, end = known.node[order], known.start[order], known.end[order]
    echoes = np.zeros((len(node), len(TAUS)))
    exposure = np.zeros(len(TAUS))
    state, since = np.zeros(len(TAUS)), 0.0
    for at in range(len(node)):
        if at == 0 or node[at] != node[at - 1]:
            state, since = np.zeros(len(TAUS)), 0.0
        left = np.exp(-(start[at] - since) / TAUS)
        exposure += state * (1.0 - left)
        echoes[at] = state * left
        if not np.isfinite(end[at]):
            continue
        state = (echoes[at] + 1.0) * np.exp(-(end[at] - start[at]) / TAUS)
        since = end[at]
        if at + 1 == len(node) or node[at + 1] != node[at]:
            exposure += state * (1.0 - np.exp(-(day - since) / TAUS))
    down_days = float((np.minimum(end, day) - start).sum())
    return _Observed(echoes, known.nodes * day - down_days, exposure)
