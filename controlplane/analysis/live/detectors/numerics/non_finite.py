"""Say which rank and which module made the first number that is not finite.

After the reduction all ranks have the same NaN, so nobody is named for having one. A rank is named when hooks
have seen a module of it make one (or the data, or what follows the model), or when its own gradient was not
finite before the reduction, and others' were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.live.places import rank_suspect
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.numbers import MeasuredStep
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.core.records.diagnosis import GradientReport

_TRACED = ("module", "inputs", "weights", "loss", "backward")
"""Traces that name something, the most telling first."""
_SEEN_HERE = ("module", "inputs", "loss")
"""Of these, the ones that a rank has seen happen in itself."""


def non_finite(s: LiveSituation) -> Iterator[Finding]:
    """NaN or Inf in gradients or losses, with the module, parameter or data that the first one came from."""
    bad = [each for each in s.numbers.recent() if not each.finite]
    if not bad:
        return
    ranks = _culprits(bad)
    traced = _best(bad, ranks)
    first = min(bad, key=lambda each: each.step)
    found = max((each for step in bad for each in step.measured), key=_extent, default=None)
    alone = rank_suspect(s.seats, ranks[0], 0.0) if len(ranks) == 1 and ranks[0] < len(s.seats.node) else None
    yield Finding(
        "non_finite",
        Level.CRITICAL,
        alone.text if alone else "",
        _reason(bad, traced, found, ranks, alone.text if alone else ""),
        place=alone.place if alone else (),
        confidence=_confidence(traced, ranks),
        evidence=_evidence(bad, traced, found, ranks),
        recommendations=_advice(traced, first.step),
        first_step=first.step,
    )


def _extent(report: GradientReport) -> int:
    return report.nans + report.infs


def _culprits(bad: list[MeasuredStep]) -> list[int]:
    """The ranks that made it, where that is known: seen by hooks, else told by their own gradients."""
    seen = {rank for step in bad for rank, each in step.traces.items() if each.trace in _SEEN_HERE}
    if seen:
        return sorted(seen)
    for step in bad:
        own = {each.rank for each in step.measured if each.local_bad == 1}
        if own and any(each.local_bad == 0 for each in step.measured):
            return sorted(own)
    return []


def _best(bad: list[MeasuredStep], ranks: list[int]) -> GradientReport | None:
    """The most telling trace, the earliest of its kind, of one of these ranks if there are any."""
    traces = [each for step in bad for _, each in sorted(step.traces.items()) if each.trace in _TRACED]
    own = [each for each in traces if each.rank in ranks] or traces
    return min(own, key=lambda each: (_TRACED.index(each.trace), each.step), default=None)


def _reason(
    bad: list[MeasuredStep],
    traced: GradientReport | None,
    found: GradientReport | None,
    ranks: list[int],
    who: str,
) -> str:
    steps = f"in step {bad[0].step}" if len(bad) == 1 else f"in {len(bad)} steps from {bad[0].step} on"
    what = "numbers"
    if found is not None and _extent(found):
        what = f"gradients ({found.nans} NaN and {found.infs} Inf of {found.numel} values)"
    where = f" of {who}" if who else f" of {len(ranks)} ranks" if ranks else ""
    text = f"{what}{where} are not finite {steps}"
    if traced is not None:
        text += f"; {traced.words}, as seen in step {traced.step}"
    else:
        text += "; which module made the first one is not known: no step was computed with hooks on modules"
    skipped = max(each.skipped for each in bad)
    return text + (f"; {skipped} steps were left out for it" if skipped else "")


def _confidence(traced: GradientReport | None, ranks: list[int]) -> float:
    if traced is not None and traced.trace in _SEEN_HERE:
        return 0.95
    return 0.7 if ranks or traced is not None else 0.4


def _evidence(
    bad: list[MeasuredStep], traced: GradientReport | None, found: GradientReport | None, ranks: list[int]
) -> tuple[tuple[str, float | str], ...]:
    evidence: list[tuple[str, float | str]] = [
        ("first_bad_step", float(bad[0].step)),
        ("bad_steps_count", float(len(bad))),
    ]
    if found is not None:
        evidence += [("nan_count", float(found.nans)), ("inf_count", float(found.infs))]
        evidence += [("values_count", float(found.numel)), ("loss", found.loss_state)]
    if traced is not None:
        evidence += [("origin_kind", traced.trace), ("origin", traced.origin)]
        evidence += [("origin_step", float(traced.step))]
    if ranks:
        evidence += [("ranks", ", ".join(map(str, ranks[:8])))]
    return tuple(evidence)


def _advice(traced: GradientReport | None, step: int) -> tuple[Recommendation, ...]:
    """What to do, by what was traced; the most likely first."""
    back = Recommendation(
        'Have the job go back to a state before: session.watch(model, on_nan="rollback"); "skip" leaves '
        "single "
        "bad steps out.",
        None,
        Effort.LOW,
    )
    if traced is None:
        return (
            Recommendation(
                f"Call session.check(loss) in each step: the step after {step} is computed again with hooks, "
                "which name the module.",
                None,
                Effort.LOW,
            ),
            back,
        )
    name = traced.origin
    special = {
        "module": (
            f"Run {name} in float32 (torch.autocast(enabled=False) around it), and look in its forward for a "
            "division, log, sqrt or exp without a bound.",
            f"Look at the samples of step {traced.step} on rank {traced.rank}; --nan-skip-window 1 leaves "
            "a bad batch out after a roll back.",
        ),
        "inputs": (
            f"Look at the samples of step {traced.step} on rank {traced.rank}: NaN or Inf is in the data "
            "already. --nan-skip-window 1 leaves the batch out after a roll back.",
            "Check values in the loader, before they are cast to a smaller type.",
        ),
        "weights": (
            f"Go back to a checkpoint before step {traced.step}: parameters of {name} are spoiled, and no "
            "step repairs them.",
            "Lower the learning rate, or clip gradients: an update made them so.",
        ),
        "loss": (
            "Look at what follows the model: its outputs are finite and the loss is not (log of 0, a mean "
            "over no tokens, a target out of range).",
            "Compute the loss in float32.",
        ),
        "backward": (
            f"Look at the backward pass of {name}: the loss is finite and its gradient is not (sqrt or "
            "norm at 0, a float16 overflow: use a GradScaler or bfloat16).",
            f"Clip by value in {name}, or lower the learning rate if its inputs have grown.",
        ),
    }[traced.trace]
    return (*(Recommendation(text, None, Effort.MEDIUM) for text in special), back)
