"""Find gradients that explode or vanish, and name the parameters in which they do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.robust import often, spread
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.numbers import MeasuredStep, NumberMemory
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.core.records.diagnosis import ParameterGradient


def exploding_gradients(s: LiveSituation) -> Iterator[Finding]:
    """A gradient norm far above its own history, or above 100 in most of the newest steps."""
    numbers = s.numbers
    jumps = [
        (each, ratio)
        for each in numbers.recent()
        if math.isfinite(each.norm) and (ratio := jump(numbers.norms.before(each.step), each.norm)) > 0.0
    ]
    newest = numbers.norms.values[-policy.NORM_LARGE_TIMES :]
    large = len(newest) == policy.NORM_LARGE_TIMES and newest.min() > policy.NORM_LARGE
    if jumps:
        yield _exploded(numbers, jumps)
    elif large:
        yield _large(numbers)


def jump(before: np.ndarray, norm: float) -> float:
    """How many times the usual norm this one is, if it is far out; else 0."""
    known = np.log(before[before > 0.0])
    if len(known) < policy.NUMBERS_LEAST or norm <= 0.0:
        return 0.0
    usual = float(np.median(known))
    apart = math.log(norm) - usual
    scatter = max(spread(known), policy.NORM_SPREAD_LEAST)
    far = apart >= math.log(policy.NORM_RATIO) and apart >= policy.NORM_SPREADS * scatter
    return math.exp(min(apart, 700.0)) if far else 0.0


def _exploded(numbers: NumberMemory, jumps: list[tuple[MeasuredStep, float]]) -> Finding:
    worst, ratio = max(jumps, key=lambda pair: pair[1])
    usual = float(np.median(numbers.norms.before(worst.step)))
    rows = _grown(worst.rows)
    named = "; most in " + ", ".join(_name(row) for row in rows) if rows else ""
    again = len(jumps) > 1
    loss = numbers.losses.before(worst.step)
    spiked = len(loss) > 0 and math.isfinite(worst.loss) and worst.loss > 1.5 * float(np.median(loss))
    clip = Recommendation(
        f"Clip: torch.nn.utils.clip_grad_norm_(model.parameters(), {2.0 * usual:.2g}), twice the usual norm, "
        "cuts this step and hardly any other.",
        None,
        Effort.LOW,
    )
    data = Recommendation(
        f"Look at the samples of step {worst.step}: its loss is {worst.loss:.3g} where "
        f"{float(np.median(loss)) if len(loss) else math.nan:.3g} was usual.",
        None,
        Effort.MEDIUM,
    )
    rate = Recommendation(
        f"Lower the learning rate, or lengthen the warm-up: it has happened in {len(jumps)} of the newest "
        "measured steps.",
        None,
        Effort.LOW,
    )
    return Finding(
        "exploding_gradients",
        Level.CRITICAL if again and numbers.norms.values[-1] >= policy.NORM_RATIO * usual else Level.DEGRADED,
        "",
        f"the gradient norm is {worst.norm:.3g} in step {worst.step}, {ratio:.3g} times the usual "
        f"{usual:.3g}{named}{_how(worst)}",
        confidence=0.9,
        evidence=(
            ("norm", worst.norm),
            ("usual_norm", usual),
            ("norm_ratio", ratio),
            ("steps_count", float(len(jumps))),
            *((f"norm_ratio_of_{row.name}", row.norm / row.usual) for row in rows),
        ),
        recommendations=(data, clip, rate) if spiked else (rate, clip) if again else (clip, rate),
        first_step=min(each.step for each, _ in jumps),
    )


def _large(numbers: NumberMemory) -> Finding:
    steps, norms = numbers.norms.steps, numbers.norms.values
    newest = next(each for each in reversed(numbers.steps) if each.step == steps[-1])
    level = float(np.median(norms[-policy.USUAL_STEPS :]))
    rows = sorted(newest.rows, key=lambda row: -row.norm)[: policy.PARAMETERS_NAMED]
    first = int(steps[norms > policy.NORM_LARGE][0])
    named = "; most in " + ", ".join(f"{row.name} ({row.norm:.3g})" for row in rows[:3]) if rows else ""
    early = first == steps[0]
    scale = Recommendation(
        "Scale the loss by what it sums over (samples, tokens), if it is a sum: norms of a mean loss are "
        "about 1.",
        None,
        Effort.LOW,
    )
    start = Recommendation(
        f"Look at the initialisation{' of ' + rows[0].name if rows else ''}: norms are this large from the "
        "first measured step on.",
        None,
        Effort.MEDIUM,
    )
    rate = Recommendation(
        f"Lower the learning rate, or clip at {policy.NORM_LARGE / 100.0:g}: norms have grown to this "
        f"since step {first}.",
        None,
        Effort.LOW,
    )
    return Finding(
        "exploding_gradients",
        Level.DEGRADED,
        "",
        f"the gradient norm is {norms[-1]:.3g}, and has been above {policy.NORM_LARGE:g} in the "
        f"{policy.NORM_LARGE_TIMES} newest measured steps{named}{_how(newest)}",
        confidence=0.7,
        evidence=(("norm", float(norms[-1])), ("usual_norm", level), ("limit_norm", policy.NORM_LARGE)),
        recommendations=(scale, start, rate) if early else (rate, scale),
        first_step=first,
    )


def vanishing_gradients(s: LiveSituation) -> Iterator[Finding]:
    """Parameters whose gradient is too small to change them, in several measured steps in sequence."""
    newest = [each for each in s.numbers.steps if math.isfinite(each.norm)][-policy.VANISHING_TIMES :]
    if len(newest) < policy.VANISHING_TIMES:
        return
    counts = [max(each.vanishing for each in step.measured) for step in newest]
    if not min(counts):
        return
    whole = max(each.norm for each in newest) < policy.VANISHING_NORM
    parts = [{row.name for row in step.rows if row.norm < policy.VANISHING_NORM} for step in newest]
    rows = {row.name: row for row in newest[-1].rows}
    names = sorted(name for name in parts[-1] if all(name in part for part in parts))
    if not whole and not names:
        return
    zero = [name for name in names if rows[name].zeros == rows[name].numel]
    total = max(each.parameters for each in newest[-1].measured)
    what = "the whole gradient" if whole else f"the gradients of {min(counts)} of {total} parameters"
    named = ": " + ", ".join(_small(rows[name]) for name in names[:3]) if names else ""
    yield Finding(
        "vanishing_gradients",
        Level.CRITICAL if whole else Level.DEGRADED,
        "",
        f"{what} vanish{'es' if whole else ''} in the {policy.VANISHING_TIMES} newest measured steps: "
        f"norms are below {policy.VANISHING_NORM:g}{named}",
        confidence=often(policy.VANISHING_TIMES, policy.VANISHING_TIMES),
        evidence=(
            ("vanishing_count", float(min(counts))),
            ("parameters_count", float(total)),
            ("norm", newest[-1].norm),
            *((f"norm_of_{name}", rows[name].norm) for name in names[: policy.PARAMETERS_NAMED]),
        ),
        recommendations=_vanished_advice(names, zero),
        first_step=newest[0].step,
    )


def _vanished_advice(names: list[str], zero: list[str]) -> tuple[Recommendation, ...]:
    found = []
    if zero:
        found.append(
            Recommendation(
                f"Look why {zero[0]} has no influence: every value of its gradient is 0 (a detach, a dead "
                "ReLU, a branch that is never taken, a mask of all tokens). Freeze it if that is meant.",
                None,
                Effort.MEDIUM,
            )
        )
    if len(zero) < max(len(names), 1):
        small = next((name for name in names if name not in zero), "the first layers")
        found.append(
            Recommendation(
                f"Compute {small} in bfloat16 or float32, or use a GradScaler: float16 has no number below "
                "6e-8.",
                None,
                Effort.LOW,
            )
        )
        found.append(
            Recommendation(
                f"Look at what lies between the loss and {small}: saturated sigmoids or softmaxes, missing "
                "residual connections or norms, an initialisation that is too small.",
                None,
                Effort.MEDIUM,
            )
        )
    return tuple(found)


def _grown(rows: list[ParameterGradient]) -> list[ParameterGradient]:
    """The parameters that have grown most, of those with a usual norm."""
    known = [row for row in rows if row.usual > 0.0 and row.norm / row.usual >= 2.0]
    return sorted(known, key=lambda row: -row.norm / row.usual)[:3]


def _name(row: ParameterGradient) -> str:
    return f"{row.name} ({row.norm / row.usual:.3g} times)"


def _small(row: ParameterGradient) -> str:
    return f"{row.name} ({'all values 0' if row.zeros == row.numel else f'{row.norm:.2g}'})"


def _how(step: MeasuredStep) -> str:
    """What the norm is of, where that has to be said."""
    reports = step.measured
    words = [
        f"the shards of {len(reports)} ranks together" if any(each.sharded for each in reports) else "",
        "measured after clipping" if any(each.clipped for each in reports) else "",
    ]
    said = ", ".join(word for word in words if word)
    return f" ({said})" if said else ""
