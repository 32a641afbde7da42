"""Show the loss of a trainer's step where the script does not report one itself.

A trainer sees each loss that its backward pass begins with. Those of one step together are shown, as
`session.report(loss=...)` would be, but not judged: a NaN is the script's own affair, or its scaler's. Where
a batch has several backward passes (a GAN), nobody knows which loss is meant, and none is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from holdfast.rank_state import RankState
    from holdfast.telemetry.gradient_watch import GradientWatch
    from holdfast.telemetry.reporting import Reports


class SummedLoss:
    """A number that is added up when somebody asks for it: reading it earlier would wait for a GPU."""

    def __init__(self, parts: list[torch.Tensor], divided_by: int) -> None:
        self._parts, self._divided_by = parts, divided_by

    def __float__(self) -> float:
        return sum(float(each) for each in self._parts) / self._divided_by


class StepLoss:
    """The loss of the running step, in one process. A trainer of `holdfast.integrations` tells it."""

    def __init__(self, state: RankState, reports: Reports, gradients: GradientWatch) -> None:
        self._state, self._reports, self._gradients = state, reports, gradients
        self._parts: list[torch.Tensor] = []  # one of each batch
        self._whole = 1
        self._new_batch = True
        self._unclear = False  # from the first batch with several on: some of its losses are of another kind

    def begin(self) -> None:
        """A step begins: what a broken one has left is none of it."""
        self._parts, self._new_batch = [], True

    def batch(self) -> None:
        """The next batch of the step begins."""
        self._new_batch = True

    def add(self, loss: Any, whole: int = 1) -> None:
        """A backward pass begins with this loss. `whole`: the trainer itself divides each by so many, one for
        each batch of a step; 1: it does not, and the step's loss is their sum, as its gradient is."""
        if not self._new_batch or not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            self._unclear = True
        self._new_batch, self._whole = False, whole
        if not self._unclear:
            self._parts.append(loss.detach().clone())  # the script may change it in place

    def add_first(self, loss: Any, whole: int) -> None:
        """The same where a batch has one loss: an optimizer that asks again (LBFGS) gets others."""
        if self._new_batch and loss is not None:
            self.add(loss, whole)

    def end(self) -> None:
        """The step is about to end."""
        parts, self._parts = self._parts, []
        if self._unclear:
            self.tell(None)
        elif parts:
            self.tell(SummedLoss(parts, min(len(parts), self._whole)))

    def tell(self, loss: Any) -> None:
        """This is the loss of the running step: rank 0's is shown, a watch has each. None: it is unclear."""
        self._gradients.offered_loss(loss)
        if self._state.rank == 0:
            self._reports.offer(self._state.generation, self._state.completed, loss)
