"""Begin and end the Holdfast steps of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.integrations.lightning import trainer_state
from holdfast.integrations.lightning.progress import BATCH
from holdfast.integrations.own_attributes import OwnAttributes
from holdfast.integrations.placed import counting_samplers, own_data
from holdfast.telemetry.training_end import OPEN_FROM

if TYPE_CHECKING:
    from holdfast.integrations.lightning.logged import Logged
    from holdfast.integrations.lightning.progress import FitProgress
    from holdfast.session import Session


class FitSteps:
    """The steps of one generation."""

    def __init__(
        self,
        session: Session,
        progress: FitProgress,
        logged: Logged,
        module: Any,
        attributes: OwnAttributes,
    ) -> None:
        self._session, self._progress, self._logged = session, progress, logged
        self._trainer, self._module, self._attributes = module.trainer, module, attributes
        self._epoch = -1  # the epoch of the newest look at attributes
        self.open = False

    @property
    def place(self) -> str:
        """Where the newest step has ended."""
        return self._progress.place

    def begin(self) -> None:
        """Begin a step, unless one has begun."""
        if not self.open:
            self._session.begin_step(OPEN_FROM)
            self._trainer.strategy.loss.begin()
            self._session.runtime.training_end.units(_limits(self._trainer))
            self.open = True

    def end(self, place: str) -> None:
        """End the step at this place.

        Gradients are used up by then; Lightning clears them only when the next ones are computed."""
        for parameter in self._module.parameters():
            parameter.grad = None
        self._look_at_attributes(place)
        self._logged.flush()
        self._logged.sealed(self._progress.seal(place, self._logged.log.calls()))
        self.open = False
        self._trainer.strategy.loss.end()
        self._session.end_step()
        self._logged.log.completed()

    def _look_at_attributes(self, place: str) -> None:
        if self._session.rank == 0:
            owners = [*self._module.modules(), *trainer_state.own_callbacks(self._trainer)]
            owners += [self._trainer.datamodule] if self._trainer.datamodule is not None else []
            data: list[Any] = []
            for loader in self._trainer.fit_loop._combined_loader.flattened:
                data += [*counting_samplers(loader), *own_data(loader.dataset, loader.collate_fn)]
            # Samplers count when an epoch, or a generation within one, begins.
            first, self._epoch = self._epoch != self._trainer.current_epoch, self._trainer.current_epoch
            looks = first or place != BATCH
            look = self._attributes.look if looks else self._attributes.step_ended
            look(owners, trainer_state.keeps, [self._module], data)


def watched_attributes() -> OwnAttributes:
    """What notices changes in one process, over all of its generations."""
    return OwnAttributes("Lightning", _KEEP)


_KEEP = (
    "If the training depends on it, make it a public attribute of the LightningModule or the callback, of "
    "plain data (numbers, texts, lists); or a buffer. Of a sampler: give it set_epoch(epoch), and have its "
    "order follow from that"
)


def _limits(trainer: Any) -> list[tuple[float, float]]:
    """What may end a fit, each as how much of it is done and all of it: steps of optimizers, and batches."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.total.completed
    return [
        (trainer.global_step, trainer.max_steps),
        (batches, (trainer.max_epochs or 0) * trainer.num_training_batches),
    ]
