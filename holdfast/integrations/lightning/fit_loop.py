"""Run Lightning's fit loop under an elastic function: one entry of it for each generation."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.utilities import _select_data_fetcher
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.seed import isolate_rng

from holdfast.data.own_generators import OwnGenerators
from holdfast.data.seeding import seed_all
from holdfast.errors import SessionError
from holdfast.integrations.lightning import cli_config, refusals
from holdfast.integrations.lightning.epoch_loop import ElasticEpochLoop
from holdfast.integrations.lightning.exports import Exports
from holdfast.integrations.lightning.logged import Logged, Loggers
from holdfast.integrations.lightning.progress import (
    BATCH,
    EPOCH_END,
    OVER,
    START,
    TRAIN_END,
    VALIDATE,
    FitProgress,
)
from holdfast.integrations.lightning.replacing import Replacing, drop_fetcher
from holdfast.integrations.lightning.steps import FitSteps, watched_attributes
from holdfast.integrations.placed import called_values, counting_samplers, data_values, order_of, own_data

if TYPE_CHECKING:
    from holdfast.session import Session


class ElasticFitLoop(Replacing, _FitLoop):
    """Lightning's fit loop, entered again in each generation. Lightning sees one run of it."""

    trainer: Any
    _data_fetcher: Any
    _combined_loader: Any

    @classmethod
    def instead_of(cls, loop: Any) -> Self:
        """A loop that takes the place of Lightning's."""
        own = super().instead_of(loop)
        own.epoch_loop = ElasticEpochLoop.instead_of(loop.epoch_loop)
        return own

    @property
    def _session(self) -> Session:
        return self.trainer.strategy.session  # type: ignore[no-any-return]

    def run(self) -> None:
        """Train, through as many generations as it takes."""
        session, strategy = self._session, self.trainer.strategy
        strategy.exports = Exports()  # steps are counted anew, and files of an earlier fit() stay
        self._progress = FitProgress(self.trainer, session)
        strategy.loggers = strategy.loggers or Loggers(self.trainer, session)
        self._logged = Logged(self.trainer, self._progress, strategy.loggers)
        self._prepared, self._divided_for, self._attributes = False, -1, watched_attributes()
        optimizers = {f"optimizer_{index}": each for index, each in enumerate(strategy.optimizers)}
        session.track(model=strategy.lightning_module, **optimizers, progress=self._progress)
        self._logged.log.track()
        session.runtime.forgotten.things = self._things
        session.runtime.beginnings.settings = self._told
        session.runtime.beginnings.others = self._progress.schedulers
        # The loader of the sanity check was made without a rank.
        self.epoch_loop.val_loop._combined_loader = None
        self._ended = False
        try:
            told = session.elastic(self._generation)()
            if self._ended:
                self._logged.log.finish()
            else:
                self._progress.take(told)
        except SystemExit as leaving:
            if leaving.code == 0 or not self._prepared:
                strategy.leave_unheard()
            raise

    @property
    def _loaders(self) -> list[Any]:
        return self._combined_loader.flattened if self._combined_loader else []

    def _told(self) -> list[tuple[str, Any]]:
        """What the training may depend on: what the trainer was told; and its data, if it has loaders."""
        data = (value for each in self._loaders for value in data_values(each.dataset))
        size = [("the number of batches in an epoch", self.max_batches)] if self._loaders else []
        called = (value for each in self._loaders for value in called_values("collate_fn", each.collate_fn))
        return [*self._progress.told(), *size, *called, *data]

    def _things(self) -> list[Any]:
        """The script's objects that take part in the steps, and the seeded generators of its data."""
        trainer = self.trainer
        found = [trainer, *trainer.lightning_module.modules(), *trainer.callbacks, trainer.datamodule]
        for each in self._loaders:
            found += [*counting_samplers(each), *own_data(each.dataset, each.collate_fn)]
            found += OwnGenerators(each.dataset, each.collate_fn, order_of(each)).known()
        return found

    def _generation(self) -> dict[str, Any]:
        """Train from the newest boundary to the end. Returns what the fit has come to."""
        strategy = self.trainer.strategy
        session = self._session
        session.restore()
        if (
            strategy.resumes and not self._progress.begun
        ):  # else the checkpoint is older than what the job knows
            refusals.refuse_checkpoint()
        strategy.set_world_ranks()
        self.trainer.training = True
        try:
            strategy.wrap()
            anyone = self._logged.meet(session, prepared=self._prepared)
            with strategy.apart() if anyone else nullcontext():
                self._prepare(session, late=anyone)
            self._progress.resume()
            if not self.skip or self._progress.begun:
                module, attributes = strategy.lightning_module, self._attributes
                self._train(FitSteps(session, self._progress, self._logged, module, attributes))
            self._ended = True
            return self._progress.outcome()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Drop what belongs to the generation."""
        self.trainer.strategy.unwrap()
        for loop in (self, self.epoch_loop.val_loop):
            drop_fetcher(loop)

    # ------------------------------------------------------------------ once per process

    def _prepare(self, session: Session, *, late: bool) -> None:
        """Do what Lightning does before the first epoch, once in each process.

        `late`: other ranks have done it before. Then the trainer knows already what they know, and tracked
        state may not be changed. Raises SessionError if a hook does."""
        if self._prepared:
            self._progress.settings.apply([])  # the loaders are made by those
            self._divide_anew(session)
            return
        given = self.trainer.accumulate_grad_batches
        if self._progress.begun:
            self._progress.remember_first()
            self._progress.resume()
        beside = session.runtime.state.guard.beside
        beside.watch()
        self._set_up(session)
        self._progress.settings.begin()
        if late or self._progress.begun:
            cli_config.pass_over(self.trainer)
        else:
            cli_config.save_config(self.trainer, "fit")
        if not self.skip:
            refusals.check_loader(self._data_fetcher)
            if not late and self.trainer.enable_autolog_hparams:
                self._logged.hyperparameters()
            self.trainer.accumulate_grad_batches = given  # GradientAccumulationScheduler checks it in there
            self.on_run_start()
        changed = beside.changed() if self._progress.begun else ""
        beside.unwatch()
        if changed:
            raise SessionError(
                f"Lightning: on_train_start changes {changed} in a process that takes a dead rank's place: "
                "do it only `if self.trainer.global_step == 0`, or in setup()"
            )
        self._prepared = True
        if not self._progress.begun:
            self._progress.remember_first()

    def _divide_anew(self, session: Session) -> None:
        """Make the loaders again if this process has another rank now: they divide the data by it."""
        if self._divided_for == session.rank:
            return
        self._combined_loader = self.epoch_loop.val_loop._combined_loader = None
        self._set_up(session)

    def _set_up(self, session: Session) -> None:
        self._divided_for = session.rank
        with isolate_rng():
            seed_all(0, 0, 0)
            self.setup_data()

    # ------------------------------------------------------------------ epochs

    def _train(self, steps: FitSteps) -> None:
        if steps.place in (BATCH, VALIDATE):
            self._set_epoch()
            self._finish_epoch(steps)
        if steps.place == EPOCH_END:
            self._end_epoch(steps)
        while steps.place == START and not self.done:
            steps.begin()
            self.on_advance_start()
            self.epoch_loop.begin_epoch()
            self._finish_epoch(steps)
            self._end_epoch(steps)
        if steps.place == START:
            self._progress.place = TRAIN_END
        if steps.place == TRAIN_END:
            steps.begin()
            self.on_run_end()
            steps.end(OVER)

    def _fetcher(self) -> Any:
        if self._data_fetcher is None:
            self._data_fetcher = _select_data_fetcher(self.trainer, RunningStage.TRAINING)
            self._data_fetcher.setup(self._combined_loader)
        return self._data_fetcher

    def _set_epoch(self) -> None:
        for loader in self._combined_loader.flattened:
            _set_sampler_epoch(loader, self.epoch_progress.current.processed)

    def _finish_epoch(self, steps: FitSteps) -> None:
        with self.trainer.profiler.profile("run_training_epoch"):
            self.epoch_loop.run_on(self._fetcher(), steps, self._session)
        if steps.open:  # no optimizer has stepped since it began
            steps.end(EPOCH_END)
        self._progress.place = EPOCH_END

    def _end_epoch(self, steps: FitSteps) -> None:
        steps.begin()
        self.on_advance_end()
        self.on_iteration_done()
        steps.end(START)
