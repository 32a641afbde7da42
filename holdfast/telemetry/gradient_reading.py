"""Read measured gradients, once their device has them, and make the rank's report of them.

The training thread makes a `GradientReading`, which queues copies to the host and waits for nothing. The
agent client's thread reads it later."""

from __future__ import annotations

import math
import statistics as numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from holdfast.ipc.messages.gradients import GradientRow, Gradients
from holdfast.telemetry import gradient_policy as policy
from holdfast.telemetry.gradient_statistics import MeasuredGradient, measured

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping, Sequence

    from holdfast.telemetry.gradient_statistics import Watched
    from holdfast.telemetry.gradient_step import Taken


@dataclass(frozen=True, slots=True)
class About:
    """The step that a reading is of."""

    generation: int
    step: int
    samples: int
    skipped: int
    full: bool  # parameters are reported one by one
    loss: Any  # a number or a tensor; None: the script gave none


class GradientReading:
    """One measurement on its way to the host."""

    def __init__(self, taken: Taken, watched: Sequence[Watched], about: About) -> None:
        self.about, self._taken = about, taken
        self._names = [each.name for each in watched]
        self._sharded = any(each.sharded for each in watched)
        self._events: list[torch.cuda.Event] = []
        self._tables = [self._host(each) for each in taken.tensors]
        self._local = (
            self._host(torch.stack([each.double() for each in taken.local])) if taken.local else None
        )
        self._scale = self._host(taken.scale) if taken.scale is not None else None
        loss = about.loss
        self._loss = self._host(loss.detach()) if isinstance(loss, torch.Tensor) else loss

    def _host(self, values: torch.Tensor) -> torch.Tensor:
        """A copy on the host, which may be on its way still."""
        if not values.is_cuda:
            return values.detach().clone().cpu()
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        with torch.cuda.device(values.device):
            copy.copy_(values, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._events.append(event)
        return copy

    @property
    def ready(self) -> bool:
        """Whether all numbers are on the host."""
        return all(event.query() for event in self._events)  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until all numbers are on the host."""
        for event in self._events:
            event.synchronize()

    def report(self, history: Mapping[str, deque[float]]) -> Gradients:
        """The report of this step; only when it is ready. `history`: the norms of each parameter before."""
        taken, scale = self._taken, float(self._scale) if self._scale is not None else 1.0
        rows = {
            index: measured(self._names[index], numel, row, scale)
            for parts, table in zip(taken.indices, self._tables, strict=True)
            for (index, numel), row in zip(parts, table.tolist(), strict=True)
        }
        found = list(rows.values())
        finite = [each for each in found if each.finite]
        local = [value / scale for value in self._local.tolist()] if self._local is not None else []
        loss, loss_state = loss_of(self._loss)
        shown = chosen(found, history) if self.about.full or len(finite) < len(found) else []
        trace, origin, words = _trace([rows[i] for i in taken.order if i in rows], loss_state)
        return Gradients(
            generation=self.about.generation,
            step=self.about.step,
            parameters=len(found),
            numel=sum(each.numel for each in found),
            norm=_bounded(_together([each.norm for each in finite])),
            local_norm=_bounded(_together(local)) if local and all(map(math.isfinite, local)) else -1.0,
            local_bad=int(not all(map(math.isfinite, local))) if local else -1,
            zeros=sum(each.zeros for each in found),
            nans=sum(each.nans for each in found),
            infs=sum(each.infs for each in found),
            vanishing=sum(each.finite and each.norm < policy.VANISHING for each in found),
            samples=self.about.samples,
            loss=loss,
            loss_state=loss_state,
            sharded=self._sharded,
            clipped=taken.clipped,
            skipped=self.about.skipped,
            left_out=_left_out(taken.left_out),
            trace=trace,
            origin=origin,
            words=words,
            rows=tuple(_row(each, usual(history, each.name)) for each in shown),
        )

    def norms(self, report: Gradients) -> dict[str, float]:
        """The finite norm of each parameter, for the history. `report`: of this reading."""
        if report.nans or report.infs:
            return {}
        scale = float(self._scale) if self._scale is not None else 1.0
        return {
            self._names[index]: row[0] / scale
            for parts, table in zip(self._taken.indices, self._tables, strict=True)
            for (index, _), row in zip(parts, table.tolist(), strict=True)
        }


def usual(history: Mapping[str, deque[float]], name: str) -> float:
    """A parameter's usual norm; -1: too few are known."""
    before = history.get(name, ())
    return numbers.median(before) if len(before) >= policy.USUAL_LEAST else -1.0


def chosen(found: Sequence[MeasuredGradient], history: Mapping[str, deque[float]]) -> list[MeasuredGradient]:
    """The parameters that a report has rows of: those that are not finite, those that have grown most, the
    smallest ones, then the largest."""

    def grown(each: MeasuredGradient) -> float:
        before = usual(history, each.name)
        return each.norm / before if before > 0.0 else 0.0

    bad = [each for each in found if not each.finite]
    finite = [each for each in found if each.finite]
    ordered = [
        *bad[: policy.ROWS_MAX],
        *sorted(finite, key=grown, reverse=True)[: policy.ROWS_CHANGED],
        *sorted(finite, key=lambda each: each.norm)[: policy.ROWS_SMALLEST],
        *sorted(finite, key=lambda each: each.norm, reverse=True),
    ]
    return list({each.name: each for each in ordered}.values())[: policy.ROWS_MAX]


def _trace(arrived: Sequence[MeasuredGradient], loss_state: str) -> tuple[str, str, str]:
    """Where values that are not finite came from, by the order in which gradients arrived: a word of TRACES,
    the parameter, and a sentence."""
    bad = next((each for each in arrived if not each.finite), None)
    if bad is None:
        return "", "", ""
    if loss_state in ("nan", "inf") or (loss_state == "unknown" and not any(e.finite for e in arrived)):
        why = "the loss was so already" if loss_state != "unknown" else "all gradients are so"
        return "unknown", "", f"{why}, so the forward pass made it; its modules were not looked at"
    words = f"the gradient of {bad.name} is the first of the backward pass that is not finite"
    return "backward", bad.name, words


def _row(each: MeasuredGradient, before: float) -> GradientRow:
    def finite(value: float) -> float:
        return _bounded(value) if math.isfinite(value) else 0.0

    return GradientRow(
        each.name[-policy.NAME_MAX :],
        each.numel,
        finite(each.norm),
        finite(each.mean),
        finite(each.deviation),
        finite(each.least),
        finite(each.most),
        each.zeros,
        each.nans,
        each.infs,
        finite(before),
    )


def is_finite(loss: Any) -> bool:
    """Whether a loss is finite, or not known. Waits for the device."""
    return loss_of(loss)[1] in ("known", "unknown")


def loss_of(value: Any) -> tuple[float, str]:
    """The loss, and a word of LOSS_STATES."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # None, several values, an object of a user
        return 0.0, "unknown"
    if math.isnan(number):
        return 0.0, "nan"
    return (0.0, "inf") if math.isinf(number) else (_bounded(number), "known")


def _together(norms: Sequence[float]) -> float:
    return math.hypot(*norms)


def _bounded(value: float) -> float:
    return max(-policy.NUMBER_MAX, min(policy.NUMBER_MAX, value))


def _left_out(found: Sequence[tuple[str, str]]) -> str:
    """What was not measured, in words."""
    shown = [f"{name[-policy.NAME_MAX :]}: {why}" for name, why in found[: policy.LEFT_OUT_SHOWN]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
