"""Run the batches of one epoch from any of its steps on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from lightning.pytorch.loops.optimization.automatic import _AutomaticOptimization
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.utilities.model_helpers import is_overridden

from holdfast.clean import gradients
from holdfast.integrations.lightning import refusals
from holdfast.integrations.lightning.batches import TrainBatches
from holdfast.integrations.lightning.progress import BATCH, VALIDATE
from holdfast.integrations.lightning.replacing import Replacing
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from holdfast.integrations.lightning.steps import FitSteps
    from holdfast.session import Session


class ClearedOptimization(Replacing, _AutomaticOptimization):
    """Lightning's, which computes gradients and steps. Those of the step before may not count in it."""

    trainer: Any

    def _optimizer_zero_grad(self, batch_idx: int, optimizer: Any) -> None:
        """Clear the gradients. Raises SessionError if a hook of the script's leaves some.

        They were dropped when the step before ended: the hook gets others, to see what it does to them."""
        module = self.trainer.lightning_module
        if not is_overridden("optimizer_zero_grad", module):
            super()._optimizer_zero_grad(batch_idx, optimizer)
            return
        parameters = [each for each in parameters_of(optimizer) if each.requires_grad]
        for each in parameters:
            each.grad = torch.ones_like(each)
        super()._optimizer_zero_grad(batch_idx, optimizer)
        if gradients.left(parameters):
            refusals.refuse_gradients(module)


class ElasticEpochLoop(Replacing, _TrainingEpochLoop):
    """Lightning's loop over batches, with Holdfast's steps around them."""

    trainer: Any
    val_loop: Any
    _batches: TrainBatches

    @classmethod
    def instead_of(cls, loop: Any) -> Self:
        """A loop that takes the place of Lightning's."""
        own = super().instead_of(loop)
        own._batches = TrainBatches()
        own.automatic_optimization = ClearedOptimization.instead_of(loop.automatic_optimization)
        return own

    def begin_epoch(self) -> None:
        """Set the counters of the epoch back, within a step."""
        self.reset()

    def run_on(self, fetcher: Any, steps: FitSteps, session: Session) -> None:
        """Run what is left of the epoch. Every step that it begins has ended when it returns, but for the one
        that it was called in if no batch follows."""
        if steps.place == VALIDATE and not steps.open:
            self._validate(fetcher, steps, session)
        if self.done:
            return
        steps.begin()
        position = self.batch_progress.current.ready
        self._batches.start(fetcher, self.trainer.current_epoch, position, session.rank)
        fetcher._start_profiler, fetcher._stop_profiler = self._on_before_fetch, self._on_after_fetch
        while not self.done:
            steps.begin()
            self.trainer.strategy.loss.batch()
            self.trainer.strategy.wrap_again()
            try:
                self.advance(fetcher)
            except StopIteration:  # on_train_batch_start gave -1: the epoch is over
                return
            self._after_batch(fetcher, steps, session)

    def _after_batch(self, fetcher: Any, steps: FitSteps, session: Session) -> None:
        if self._should_accumulate():
            self.on_advance_end(fetcher)
        elif self._should_check_val_fx(fetcher):
            steps.end(VALIDATE)
            self._validate(fetcher, steps, session)
        else:
            self.on_advance_end(fetcher)
            steps.end(BATCH)

    def _validate(self, fetcher: Any, steps: FitSteps, session: Session) -> None:
        steps.begin()
        self.val_loop.setup_data()
        self._batches.seed_validation(self.val_loop._combined_loader, session.step, session.rank)
        with session.phase("evaluate"):
            self.on_advance_end(fetcher)
        steps.end(BATCH)
