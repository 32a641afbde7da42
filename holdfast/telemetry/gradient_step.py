"""Measure the gradients of one step: after they are reduced, and before the script clips them.

A hook on each parameter runs when its gradient arrives. The first one of a backward pass queues a callback in
the autograd engine, which queues another one: callbacks run in the order in which they were queued, so DDP's,
which waits for the other ranks, comes in between (`holdfast.anatomy.calls` says more). What arrives at a hook
is this rank's own gradient, before it is reduced. Where no hook can be (DTensors, flat parameters), or no
backward pass was seen, gradients are measured when the optimizer begins.

Hooks are there in measured steps only, and change no gradient."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from holdfast.telemetry import gradient_statistics as statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.telemetry.gradient_statistics import Watched

_NO_TASK = -1
_engine: Any = torch.autograd.Variable._execution_engine
_task: Callable[[], int] = torch._C._current_graph_task_id


@dataclass(slots=True)
class Taken:
    """Gradients as numbers on their devices. `indices`: which parameter each row of each tensor is of, and
    how many values its gradient has on this rank (a complex number counts twice)."""

    indices: list[list[tuple[int, int]]]
    tensors: list[torch.Tensor]
    left_out: list[tuple[str, str]]  # parameters that were not measured, and why
    clipped: bool = False
    order: list[int] = field(default_factory=list)  # parameters as their gradients arrived
    local: list[torch.Tensor] = field(default_factory=list)  # norms before they were reduced; none: unknown
    scale: torch.Tensor | None = None  # by which all of them were multiplied


class StepMeasurement:
    """The measurement of one step. `hooked`: begin at the backward pass; `local`: measure this rank's own
    gradients too; `passes_usual`: how many backward passes a step has."""

    def __init__(self, watched: Sequence[Watched], *, hooked: bool, local: bool, passes_usual: int) -> None:
        self._watched, self._local_wanted, self._usual = watched, local, passes_usual
        self.passes = 0
        self._running = _NO_TASK
        self._order: list[int] = []
        self._local: dict[int, torch.Tensor | None] = {}
        self._taken: Taken | None = None
        self._hooks: list[Any] = []
        if hooked and not any(each.sharded for each in watched):
            for index, each in enumerate(watched):
                self._hooks.append(each.parameter.register_hook(self._arrives(index)))  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _arrives(self, index: int) -> Callable[[torch.Tensor], None]:
        def hook(gradient: torch.Tensor) -> None:
            if _capturing():
                return
            if self._running != _task():
                self._running = _task()
                self.passes += 1
                self._order.clear()
                _engine.queue_callback(lambda: _engine.queue_callback(self._reduced))
            self._order.append(index)
            if self._local_wanted:
                self._local[index] = _norm(gradient)

        return hook

    def _reduced(self) -> None:
        """A backward pass is over, and DDP has the gradients of the other ranks."""
        self._running = _NO_TASK
        if self.passes >= self._usual:
            self._taken = self._take()

    def _take(self) -> Taken:
        alike: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = defaultdict(list)
        left_out = []
        for index, each in enumerate(self._watched):
            values, why = statistics.values_of(each)
            if values is None:
                left_out.append((each.name, why))
            else:
                alike[values.device, values.dtype].append((index, values))
        return Taken(
            [[(index, values.numel()) for index, values in found] for found in alike.values()],
            [statistics.measure([values for _, values in found]) for found in alike.values()],
            left_out,
        )

    def finish(self, optimizer: torch.optim.Optimizer, scaler: Any) -> Taken | None:
        """The measurement, now that an optimizer begins; None while a CUDA graph is captured.

        `scaler`: the GradScaler that calls the optimizer; None: there is none."""
        if _capturing():
            return None
        taken = self._taken
        if taken is None:
            taken = self._take()
            taken.clipped, taken.scale = True, getattr(optimizer, "grad_scale", None)
        elif scaler is not None:
            taken.scale = scaler._scale
        taken.order = self._order or list(range(len(self._watched)))[::-1]
        own = [norm for norm in self._local.values() if norm is not None]
        if self.passes == 1 and own and len(own) == len(self._local):
            taken.local = own
        return taken


def _norm(gradient: torch.Tensor) -> torch.Tensor | None:
    gradient = gradient.detach()
    if gradient.layout is not torch.strided or not gradient.is_floating_point():
        return None
    norm: torch.Tensor = torch.linalg.vector_norm(gradient, dtype=statistics.summed_in(gradient))
    return norm


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
