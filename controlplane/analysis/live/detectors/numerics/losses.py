"""Find losses that jump, and losses that do not fall any more.

A spike is judged by the median and the spread of the losses before it, a plateau by the slope of Theil and
Sen (the median of the slopes between pairs of losses), so single losses move neither."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.robust import spread
from controlplane.analysis.trends.slopes import theil_sen
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.situation import LiveSituation

_SLOPE_SAMPLES = 100
"""Losses from which a slope is computed, evenly taken: pairs grow with the square."""


def loss_spike(s: LiveSituation) -> Iterator[Finding]:
    """A loss far above what is usual, in one step or from one on."""
    numbers = s.numbers
    spikes = [
        (each, spreads)
        for each in numbers.recent()
        if math.isfinite(each.loss) and (spreads := above(numbers.losses.before(each.step), each.loss)) > 0.0
    ]
    if not spikes:
        return
    worst, spreads = max(spikes, key=lambda pair: (pair[1], pair[0].step))
    first = min(each.step for each, _ in spikes)
    usual = float(np.median(numbers.losses.before(first)))
    newest, norms = numbers.losses.values[-policy.SPIKE_LASTING :], numbers.norms.before(first)
    lasts = len(spikes) >= policy.SPIKE_LASTING and newest.min() > policy.SPIKE_RATIO * usual
    grown = worst.norm / max(float(np.median(norms)), 1e-12) if len(norms) else math.nan
    state = "and stays high" if lasts else "in one measured step" if len(spikes) == 1 else "more than once"
    yield Finding(
        "loss_spike",
        Level.CRITICAL if lasts else Level.DEGRADED,
        "",
        f"the loss jumps to {worst.loss:.4g} in step {worst.step}, {spreads:.3g} spreads above the usual "
        f"{usual:.4g}, {state}",
        confidence=0.9,
        evidence=(
            ("loss", worst.loss),
            ("usual_loss", usual),
            ("spreads_count", spreads),
            ("spikes_count", float(len(spikes))),
            *((("norm_ratio", grown),) if math.isfinite(grown) else ()),
        ),
        recommendations=_spike_advice(worst.step, grown, lasts=lasts),
        first_step=first,
    )


def above(before: np.ndarray, loss: float) -> float:
    """By how many spreads a loss lies above those before, if that is far; else 0."""
    if len(before) < policy.NUMBERS_LEAST:
        return 0.0
    usual = float(np.median(before))
    scatter = max(spread(before), policy.SPIKE_SPREAD_LEAST * abs(usual), 1e-12)
    spreads = (loss - usual) / scatter
    far = spreads >= policy.SPIKE_SPREADS and loss - usual >= (policy.SPIKE_RATIO - 1.0) * abs(usual)
    return spreads if far else 0.0


def _spike_advice(step: int, grown: float, *, lasts: bool) -> tuple[Recommendation, ...]:
    data = Recommendation(
        f"Look at the samples of step {step} (the sample ledger names them): a single batch made this.",
        None,
        Effort.MEDIUM,
    )
    clip = Recommendation(
        f"Clip gradients: the norm of this step is {grown:.3g} times the usual one.", None, Effort.LOW
    )
    back = Recommendation(
        f"Go back to a checkpoint before step {step}, with a lower learning rate: the weights have left what "
        "they had learned.",
        None,
        Effort.MEDIUM,
    )
    if lasts:
        return (back, clip) if grown > 2.0 else (back, data)
    return (clip, data) if grown > 2.0 else (data,)


def loss_plateau(s: LiveSituation) -> Iterator[Finding]:
    """A loss that has fallen before, and does not any more."""
    steps, losses = s.numbers.losses.steps, s.numbers.losses.values
    if len(losses) <= policy.PLATEAU_LOSSES:
        return
    newest = slice(len(losses) - policy.PLATEAU_LOSSES, None)
    level, span = float(np.median(losses[newest])), float(np.ptp(steps[newest]))
    chosen = np.linspace(0, policy.PLATEAU_LOSSES - 1, _SLOPE_SAMPLES).astype(int)
    per_step = theil_sen(steps[newest][chosen].astype(np.float64), losses[newest][chosen])
    before = losses[: newest.start][: policy.USUAL_STEPS]
    fell = float(np.median(before)) - level if len(before) >= policy.NUMBERS_LEAST else 0.0
    needed = policy.PLATEAU_RATIO * abs(level)
    if level == 0.0 or -per_step * span >= needed or fell < 10.0 * needed:
        return
    noise = s.numbers.noise_scale(len(s.seats.node))
    evidence: tuple[tuple[str, float | str], ...] = (
        ("loss", level),
        ("slope_per_step", per_step),
        ("steps_count", span),
        ("noise_scale_samples", noise.samples if math.isfinite(noise.samples) else "unknown"),
        ("batch_samples", noise.batch if math.isfinite(noise.batch) else "unknown"),
    )
    yield Finding(
        "loss_plateau",
        Level.DEGRADED,
        "",
        f"the loss has stayed at {level:.4g} for {span:.0f} steps: it changes by {per_step * span:+.2g} "
        f"over all of them, and had fallen by {fell:.3g} before",
        confidence=0.6,
        evidence=evidence,
        recommendations=_plateau_advice(noise.samples, noise.batch),
        first_step=int(steps[newest][0]),
    )


def _plateau_advice(noise: float, batch: float) -> tuple[Recommendation, ...]:
    rate = Recommendation(
        "Lower the learning rate (a tenth, for some hundred steps): if the loss falls at once, it had been "
        "too large for this valley.",
        None,
        Effort.LOW,
    )
    done = Recommendation(
        "Stop, or look at the loss of held-out data: this may be as far as this model and data go.",
        None,
        Effort.LOW,
    )
    if math.isfinite(noise) and math.isfinite(batch) and noise > 2.0 * batch:
        larger = Recommendation(
            f"Take a larger batch: the gradient noise scale is about {noise:.3g} samples, and a batch has "
            f"{batch:.0f}; steps are mostly noise.",
            None,
            Effort.MEDIUM,
        )
        return larger, rate, done
    return rate, done
