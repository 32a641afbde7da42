"""Measure gradients on their device, as one small tensor, without waiting for it.

Of each gradient: L2 norm, mean, least and greatest value, and how many values are not zero, NaN and Inf. The
standard deviation follows from them: E(x^2) - E(x)^2. What has no plain dense gradient is measured by what it
has (values of a sparse one, both parts of complex numbers, the local shard of a DTensor), or left out with
the reason. Nothing is written to a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from holdfast.state import shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NORM, MEAN, LEAST, MOST, NONZERO, NANS, INFS = range(7)
"""The columns of a measurement."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A parameter that is watched: its name, and other names under which the model has it, too."""

    name: str
    parameter: torch.nn.Parameter
    aliases: tuple[str, ...] = ()

    @property
    def sharded(self) -> bool:
        """Whether this rank holds a part of it only."""
        return shards.is_dtensor(self.parameter) or type(self.parameter).__name__ == "FlatParameter"


@dataclass(frozen=True, slots=True)
class MeasuredGradient:
    """One gradient as it was measured. Non-finite numbers stay so. `zeros`: of a sparse gradient, those among
    the values that it holds."""

    name: str
    numel: int
    norm: float
    mean: float
    deviation: float
    least: float
    most: float
    zeros: int
    nans: int
    infs: int

    @property
    def finite(self) -> bool:
        """Whether all of its values are finite."""
        return not self.nans and not self.infs


def named(model: torch.nn.Module) -> list[Watched]:
    """The parameters of a model that need gradients, each once; tied ones under their first name."""
    names: dict[torch.nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(parameter, []).append(_plain(name))
    return [Watched(first, parameter, tuple(rest)) for parameter, (first, *rest) in names.items()]


def _plain(name: str) -> str:
    """A name without what torch.compile and wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_fsdp_wrapped_module"))


def values_of(watched: Watched) -> tuple[torch.Tensor | None, str]:
    """The gradient as one dense tensor of real numbers; None, and why, if there is none to measure."""
    gradient = watched.parameter.grad
    if gradient is None:
        return None, "it has no gradient: nothing in this step used it"
    if shards.is_dtensor(gradient):
        if any(placement.is_partial() for placement in gradient.placements):  # type: ignore[attr-defined]
            return None, "its gradient is a DTensor with a pending sum"
        gradient = shards.local(gradient)
    gradient = gradient.detach()
    if gradient.is_sparse:
        gradient = gradient.coalesce().values()
    if gradient.is_complex() and gradient.layout is torch.strided:
        gradient = torch.view_as_real(gradient.resolve_conj())
    why = _unmeasurable(gradient)
    return (None, why) if why else (gradient, "")


def _unmeasurable(gradient: torch.Tensor) -> str:
    """Why this local gradient cannot be measured; "" if it can."""
    if gradient.layout is not torch.strided:
        return f"its gradient has the layout {gradient.layout}"
    if gradient.is_meta:
        return "its gradient is on the device meta, and has no values"
    if not gradient.is_floating_point():
        return f"its gradient is of {gradient.dtype}"
    return "" if gradient.numel() else "its part on this rank is empty"


@torch.no_grad()
def measure(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """One row per gradient (all on one device, of one type, none empty), of the columns above, float64."""
    kind = summed_in(gradients[0])
    lowest, highest = zip(*(torch.aminmax(each) for each in gradients), strict=True)
    columns = (
        torch._foreach_norm(list(gradients), 2.0, dtype=kind),
        [torch.mean(each, dtype=kind) for each in gradients],
        lowest,
        highest,
        [torch.count_nonzero(each) for each in gradients],
        [torch.count_nonzero(torch.isnan(each)) for each in gradients],
        [torch.count_nonzero(torch.isinf(each)) for each in gradients],
    )
    return torch.stack([_column(each) for each in columns], dim=1)


def summed_in(gradient: torch.Tensor) -> torch.dtype:
    """The type in which values of a gradient are added up: float16 would overflow."""
    return torch.float64 if gradient.dtype is torch.float64 else torch.float32


def _column(values: Iterable[torch.Tensor]) -> torch.Tensor:
    found = list(values)
    if len({each.dtype for each in found}) > 1:
        found = [each.double() for each in found]
    return torch.stack(found).double()


@torch.no_grad()
def all_finite(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Whether all values are finite, as a tensor of one bool on the first one's device."""
    norms = torch._foreach_norm(list(gradients), float("inf"))
    device = norms[0].device
    return torch.isfinite(torch.stack([each.to(device, torch.float64) for each in norms])).all()


def measured(name: str, numel: int, row: Sequence[float], scale: float = 1.0) -> MeasuredGradient:
    """A row of `measure` as a record. `scale`: what the gradients were multiplied by (a GradScaler's).

    The standard deviation is E(x^2) - E(x)^2, with E(x^2) = norm^2 / numel."""
    norm, mean, least, most = (value / scale for value in row[:NONZERO])
    variance = norm * norm / numel - mean * mean
    deviation = math.sqrt(variance) if variance > 0.0 else 0.0 * variance
    return MeasuredGradient(
        name,
        numel,
        norm,
        mean,
        deviation,
        least,
        most,
        numel - int(row[NONZERO]),
        int(row[NANS]),
        int(row[INFS]),
    )
