"""Take the place of DDPStrategy: no launcher, no process group of Lightning's, the session's wrapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightning.fabric.utilities.optimizer import _optimizers_to_device
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from lightning_utilities.core.rank_zero import rank_zero_only as utils_rank_zero_only

from holdfast.integrations import saving, versions
from holdfast.integrations.lightning import refusals
from holdfast.integrations.lightning.environment import HoldfastEnvironment
from holdfast.integrations.lightning.evaluation import ElasticEvaluationLoop, ElasticPredictionLoop
from holdfast.integrations.lightning.exports import Exports
from holdfast.integrations.lightning.fit_loop import ElasticFitLoop
from holdfast.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch


class HoldfastStrategy(DDPStrategy):
    """DDP that survives the death of ranks: `Trainer(strategy=HoldfastStrategy(), ...)`.

    - `session`: the script's Session; None: one is made, with the seed of `seed_everything` if there is one.
    - `options` are those of DistributedDataParallel (`find_unused_parameters`), and Lightning's
      `precision_plugin` and `checkpoint_io`.

    Raises SessionError for what is not kept."""

    strategy_name = "holdfast"
    model: Any
    lightning_module: Any
    optimizers: list[Any]
    loggers: Any  # of the trainer, from its first fit() on

    def __init__(self, session: Session | None = None, **options: Any) -> None:
        options = refusals.chosen_options(options)
        versions.check("lightning")
        self.session = session or Session(seed=int(os.environ.get("PL_GLOBAL_SEED", "0")))
        self._environment = HoldfastEnvironment(self.session)
        self._apart, self._own_forward = False, None
        self._trained: list[bool] = []
        self.exports, self.loggers, self.resumes = Exports(), None, False
        self.loss = self.session.runtime.step_loss
        super().__init__(cluster_environment=self._environment, **options)

    # ------------------------------------------------------------------ processes and ranks

    def _configure_launcher(self) -> None:
        """The processes are there already."""

    def setup_distributed(self) -> None:
        """Form nothing: the session forms a group in each generation."""
        reset_seed()
        self.set_world_ranks()

    def set_world_ranks(self) -> None:
        """Tell Lightning whether this process is rank 0."""
        for each in (rank_zero_only, utils_rank_zero_only):
            setattr(each, "rank", self.global_rank)  # noqa: B010

    @property
    def root_device(self) -> torch.device:
        """The device of this process."""
        return self.session.device

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The division of an epoch among ranks; all of it for a sanity check before this process has one."""
        if not self._environment.placed:
            return {"num_replicas": 1, "rank": 0}
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    # ------------------------------------------------------------------ the model

    def setup(self, trainer: Any) -> None:
        """Set the trainer up, but for the process group and the wrapper: those come with each generation."""
        if "save_checkpoint" not in vars(trainer):
            trainer.save_checkpoint = saving.unless_late(self.session, trainer.save_checkpoint)
        if trainer.state.fn != TrainerFn.FITTING:
            self._set_evaluation_up(trainer)
            return
        refusals.check_trainer(trainer)
        if self.session.catching_up:  # the module gets its state in the fit() that runs
            trainer.num_sanity_val_steps = 0
        self.resumes = refusals.resumes(trainer)
        self.accelerator.setup(trainer)
        if self._layer_sync:
            self.model = self._layer_sync.apply(self.model)
        self.model = self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        self.setup_optimizers(trainer)
        self.setup_precision_plugin()
        _optimizers_to_device(self.optimizers, self.root_device)
        refusals.check_optimizers(self.optimizers)
        if not isinstance(trainer.fit_loop, ElasticFitLoop):
            trainer.fit_loop = ElasticFitLoop.instead_of(trainer.fit_loop)

    def _set_evaluation_up(self, trainer: Any) -> None:
        name = f"{trainer.state.fn.value}_loop"
        kind = ElasticPredictionLoop if name == "predict_loop" else ElasticEvaluationLoop
        refusals.check_module(trainer)
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        self.setup_precision_plugin()
        if not isinstance(getattr(trainer, name), kind):
            setattr(trainer, name, kind.instead_of(getattr(trainer, name)))

    def leave_unheard(self) -> None:
        """A spare that nobody needed ends: no callback and no logger is to take it for a failure."""
        trainer = self.lightning_module.trainer
        trainer.callbacks, trainer.loggers = [], []

    def wrap(self) -> None:
        """Wrap the module for this generation's group."""
        self._own_forward = self.lightning_module.__dict__.get("forward")
        self._trained = self._needing_gradients()
        self.model = self.session.ddp(self.lightning_module, weighted=False, **self._ddp_kwargs)

    def wrap_again(self) -> None:
        """Wrap anew if a callback has frozen or unfrozen parameters (BaseFinetuning): a wrapper averages the
        gradients of those that needed some when it was made."""
        if self._needing_gradients() != self._trained:
            self.unwrap()
            self.wrap()

    def _needing_gradients(self) -> list[bool]:
        return [each.requires_grad for each in self.lightning_module.parameters()]

    def unwrap(self) -> None:
        """Let go of the wrapper, and of a forward that a broken call of it has left in the module."""
        self.model = self.lightning_module
        self.lightning_module.__dict__.pop("forward", None)
        if self._own_forward is not None:
            self.lightning_module.forward = self._own_forward

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Lightning's; the loss that it returns is shown to the operator."""
        found = super().training_step(*args, **kwargs)
        loss = found.get("loss") if isinstance(found, Mapping) else found
        self.loss.add_first(loss, self.lightning_module.trainer.accumulate_grad_batches)
        return found

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **options: Any
    ) -> Any:
        """Compute the gradients first, then let the optimizer step.

        Lightning does the first within the second: then a step could not be undone after a death in a
        backward pass, which is where nearly all deaths are noticed."""
        return super().optimizer_step(optimizer, _Computed(closure), model, **options)

    def save_checkpoint(self, checkpoint: Any, filepath: Any, storage_options: Any = None) -> None:
        """Write a checkpoint of Lightning's own, once every rank knows that it is written."""
        self.exports.note(self.session.step, filepath)
        self.barrier("save_checkpoint")
        super().save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    # ------------------------------------------------------------------ collectives

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Within, this process does alone what other ranks have done before: collectives do nothing."""
        self._apart = True
        try:
            yield
        finally:
            self._apart = False

    @property
    def _is_apart(self) -> bool:
        """Whether other ranks take no part in what this process does: also on its way to a later fit()."""
        return self._apart or self.session.catching_up

    def barrier(self, *args: Any, **options: Any) -> None:
        """Wait for the other ranks."""
        if not self._is_apart:
            super().barrier(*args, **options)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of rank `src`."""
        return obj if self._is_apart else super().broadcast(obj, src)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce over the ranks."""
        return tensor if self._is_apart else super().reduce(tensor, group, reduce_op)

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Gather from the ranks."""
        return tensor if self._is_apart else super().all_gather(tensor, group, sync_grads)


StrategyRegistry.register(HoldfastStrategy.strategy_name, HoldfastStrategy, "DDP that survives dead ranks")


class _Computed:
    """A closure that has been called once already: the first call gives that result."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure, self._results = closure, [closure()]

    def __call__(self) -> Any:
        return self._results.pop() if self._results else self._closure()
