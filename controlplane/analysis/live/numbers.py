"""Remember the losses and gradients that ranks have measured, by step, over generations.

A step's loss is the mean over the ranks that know one. Its gradient norm is that of any rank, since gradients
are reduced; where ranks hold shards it is the root of the sum of their squares, which counts a shard once for
each rank that holds it. Steps that are computed again replace what they were. A report that cannot be
believed is left out. Where nothing is measured, the loss is the one that rank 0's script has reported, or its
trainer has told: it is shown, and nothing is found in it.

The gradient noise scale is that of McCandlish et al., "An Empirical Model of Large-Batch Training" (2018),
appendix A: from the norms of gradients of one rank's samples (B_small) and of all ranks' (B_big),
|G|^2 = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small), S = (|G_small|^2 - |G_big|^2) /
(1 / B_small - 1 / B_big), both as means over steps, and the scale S / |G|^2, in samples."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from controlplane.analysis.robust import Floats
    from controlplane.core.records.diagnosis import GradientReport, ParameterGradient


@dataclass(slots=True)
class MeasuredStep:
    """What the ranks measured in one step. `window`: in which window that was heard first."""

    step: int
    generation: int
    window: int
    reports: dict[int, GradientReport] = field(default_factory=dict)  # by rank
    traces: dict[int, GradientReport] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether no rank has a NaN or Inf."""
        return not self.traces and not any(each.nans or each.infs for each in self.reports.values())

    @property
    def measured(self) -> list[GradientReport]:
        """The reports with gradients, in the order of ranks."""
        return [self.reports[rank] for rank in sorted(self.reports)]

    @property
    def norm(self) -> float:
        """The norm of the gradient; NaN where it is not known, or not finite."""
        found = self.measured
        if not found or not self.finite:
            return math.nan
        if any(each.sharded for each in found):
            return math.hypot(*(each.norm for each in found))
        return statistics.median(each.norm for each in found)

    @property
    def loss(self) -> float:
        """The mean loss of the ranks; NaN where it is not known, or not finite."""
        found = [each.loss for each in self.measured if each.loss_state == "known"]
        return statistics.fmean(found) if found else math.nan

    @property
    def skipped(self) -> int:
        """How many steps were left out until then."""
        return max((each.skipped for each in (*self.reports.values(), *self.traces.values())), default=0)

    @property
    def rows(self) -> list[ParameterGradient]:
        """The parameters that were reported one by one, each once; of several ranks, as the first told it."""
        found: dict[str, ParameterGradient] = {}
        for each in self.measured:
            for row in each.rows:
                found.setdefault(row.name, row)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class StepSeries:
    """One finite number of each measured step that has it, ascending."""

    steps: NDArray[np.int64]
    values: Floats

    def before(self, step: int) -> Floats:
        """The values of the newest steps before this one, by which it is judged."""
        end = int(np.searchsorted(self.steps, step))
        return self.values[max(0, end - policy.USUAL_STEPS) : end]


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The gradient noise scale. `samples` NaN: not known, for this reason."""

    samples: float
    steps: int
    batch: float  # of all ranks together, in samples
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """The newest numbers, for metrics. NaN: not known, or not finite."""

    loss: float
    norm: float
    noise_samples: float
    skipped: int
    parameters: tuple[tuple[str, float], ...]  # the largest norms, by parameter


class NumberMemory:
    """The measured steps of one job, ascending."""

    def __init__(self) -> None:
        self._steps: dict[int, MeasuredStep] = {}
        self.window = 0  # windows so far
        self.left_out = 0  # reports that could not be believed
        self._told: float | None = None  # the newest loss that was reported, and not measured
        self.steps: list[MeasuredStep] = []  # ascending
        self.norms = self.losses = _series([], [])

    def take(self, reports: Iterable[GradientReport]) -> None:
        """Take in what was reported in one window."""
        self.window += 1
        for each in reports:
            if not _believed(each):
                self.left_out += 1
            elif each.parameters or each.trace:
                self._add(each)
            elif each.loss_state == "known":
                self._told = each.loss
            elif each.loss_state != "unknown" or self._told is not None:
                self._told = math.nan  # the one before is not the newest any more
        for step in sorted(self._steps)[: -policy.NUMBERS_KEPT]:
            del self._steps[step]
        self.steps = [self._steps[step] for step in sorted(self._steps)]
        self.norms = _series(self.steps, [each.norm for each in self.steps])
        self.losses = _series(self.steps, [each.loss for each in self.steps])

    def _add(self, report: GradientReport) -> None:
        known = self._steps.get(report.step)
        if known is not None and report.generation < known.generation:
            return
        if known is None or report.generation > known.generation:
            known = self._steps[report.step] = MeasuredStep(report.step, report.generation, self.window)
            self._undo(report)
        if report.parameters:
            known.reports[report.rank] = report
        if report.trace:
            known.traces.setdefault(report.rank, report)
            if report.trace in ("module", "weights", "inputs"):
                known.traces[report.rank] = report

    def _undo(self, report: GradientReport) -> None:
        """Forget later steps of older generations: they are computed again. Their anomalies stay."""
        for step in [step for step in self._steps if step > report.step]:
            found = self._steps[step]
            if found.generation < report.generation and found.finite:
                del self._steps[step]

    def recent(self) -> list[MeasuredStep]:
        """The steps of the newest windows, ascending."""
        first = self.window - policy.EVENT_WINDOWS
        return [each for each in self.steps if each.window > first]

    def summary(self, ranks: int) -> NumberSummary | None:
        """The newest numbers of a job of so many ranks; None where nothing was measured or told."""
        if not self.steps:
            return None if self._told is None else NumberSummary(self._told, math.nan, math.nan, 0, ())
        newest = self.steps[-1]
        rows = sorted(newest.rows, key=lambda row: (-row.norm, row.name))[: policy.PARAMETERS_NAMED]
        return NumberSummary(
            newest.loss,
            newest.norm,
            self.noise_scale(ranks).samples,
            max(each.skipped for each in self.steps),
            tuple((row.name, row.norm) for row in rows if not row.nans and not row.infs),
        )

    def noise_scale(self, ranks: int) -> NoiseScale:
        """The noise scale of the gradient over the newest steps, in a job of so many ranks."""
        pairs = [pair for each in self.steps if (pair := _norms(each, ranks)) is not None]
        pairs = pairs[-policy.NOISE_STEPS :]
        if len(pairs) < policy.NOISE_LEAST:
            why = "too few steps have norms before and after the reduction, of equal shares of samples"
            return NoiseScale(math.nan, len(pairs), math.nan, why)
        small, big, batch_small = (np.array(column) for column in zip(*pairs, strict=True))
        batch_big = batch_small * ranks
        signal = float(np.mean((batch_big * big - batch_small * small) / (batch_big - batch_small)))
        noise = float(np.mean((small - big) / (1.0 / batch_small - 1.0 / batch_big)))
        batch = float(batch_big[-1])
        if signal <= 0.0 or noise < 0.0:
            return NoiseScale(
                math.nan, len(pairs), batch, "the signal drowns in the scatter of the estimates"
            )
        return NoiseScale(noise / signal, len(pairs), batch)


def _series(steps: Sequence[MeasuredStep], values: Sequence[float]) -> StepSeries:
    known = [(each.step, value) for each, value in zip(steps, values, strict=True) if math.isfinite(value)]
    at, numbers = zip(*known, strict=True) if known else ((), ())
    return StepSeries(np.array(at, dtype=np.int64), np.array(numbers, dtype=np.float64))


def _norms(step: MeasuredStep, ranks: int) -> tuple[float, float, float] | None:
    """The mean squared norm before the reduction, the squared norm after it, and samples per rank."""
    found = step.measured
    if ranks < 2 or len(found) != ranks or not step.finite or any(each.sharded for each in found):
        return None
    samples = {each.samples for each in found}
    if len(samples) != 1 or 0 in samples or any(each.local_norm < 0.0 or each.clipped for each in found):
        return None
    return float(np.mean([each.local_norm**2 for each in found])), step.norm**2, float(samples.pop())


def _believed(report: GradientReport) -> bool:
    """Whether a report can be: finite, nothing negative that counts, a rank and a step."""
    numbers = [report.norm, report.local_norm, report.loss]
    numbers += [value for row in report.rows for value in (row.norm, row.mean, row.deviation, row.usual)]
    counts = [report.rank, report.step, report.parameters, report.numel, report.nans, report.infs]
    return (
        all(math.isfinite(number) for number in numbers)
        and report.norm >= 0.0
        and all(row.norm >= 0.0 for row in report.rows)
        and min(counts) >= 0
        and report.nans + report.infs <= max(report.numel, 0)
    )
