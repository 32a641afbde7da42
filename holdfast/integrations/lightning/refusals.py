"""Refuse, by name, what is not kept exactly."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NoReturn

from lightning.pytorch.callbacks import (
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.strategies import DDPStrategy
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OPTIONS = {
    "ddp_comm_hook": "it belongs to a wrapper of one generation",
    "ddp_comm_state": "it belongs to a wrapper of one generation",
    "ddp_comm_wrapper": "it belongs to a wrapper of one generation",
    "model_averaging_period": "averages between steps are not kept",
    "process_group_backend": "give Session(backend=...)",
    "timeout": "Holdfast finds hangs itself",
    "start_method": "the launcher makes the processes",
    "cluster_environment": "ranks come from the session",
    "parallel_devices": "the device comes from the session",
}

_LIGHTNINGS = frozenset({"accelerator", "checkpoint_io", "precision_plugin"})
"""The options of DDPStrategy that are Lightning's own, and are kept."""

_AVERAGES = (
    "its average of the weights is in no state of a callback, and would begin anew when a rank dies. Make "
    "the average a submodule of your module (AveragedModel(...).requires_grad_(False)), and update it in "
    "on_train_batch_end"
)
_CALLBACKS: dict[type, str] = {
    StochasticWeightAveraging: _AVERAGES,
    WeightAveraging: _AVERAGES,
    ModelPruning: (
        "it gives the module other parameters while it trains, and a process that takes a dead rank's place "
        "does not have them. Prune the module before fit(), by torch.nn.utils.prune"
    ),
    LearningRateFinder: "it trains before ranks are known: find the rate in a run without HoldfastStrategy",
}


def chosen_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not left at their defaults: LightningCLI gives a strategy all that its signature names.

    Raises SessionError for an option that Holdfast cannot keep, or of another strategy than DDPStrategy."""
    known = inspect.signature(DistributedDataParallel).parameters
    defaults = {**known, **inspect.signature(DDPStrategy).parameters}
    chosen = {
        name: value
        for name, value in options.items()
        if name not in defaults or not (value is defaults[name].default or value == defaults[name].default)
    }
    for name in chosen:
        if name in _OPTIONS:
            raise SessionError(f"HoldfastStrategy({name}=...): {_OPTIONS[name]}: leave it out")
        if name not in known.keys() | _LIGHTNINGS:
            raise SessionError(
                f"HoldfastStrategy({name}=...): it is no option of DistributedDataParallel. This strategy is "
                "for DDP: sharded state (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy) is not "
                "supported under Lightning; use fully_shard in a loop of your own with Session"
            )
    return chosen


def check_trainer(trainer: Any) -> None:
    """Raise SessionError if the trainer or its module asks for what is not kept."""
    if not trainer.lightning_module.automatic_optimization:
        raise SessionError(
            "Lightning: automatic_optimization=False is not supported: nothing says where a step ends. Use "
            "automatic optimization, or a loop of your own with Session"
        )
    check_module(trainer)
    _check_callbacks(trainer.callbacks)
    if getattr(trainer, "_val_check_time_interval", None) is not None:
        raise SessionError(
            "Lightning: val_check_interval as a time is not supported: give a number of batches"
        )
    if trainer.reload_dataloaders_every_n_epochs:
        raise SessionError("Lightning: reload_dataloaders_every_n_epochs is not supported: leave it out")


def check_module(trainer: Any) -> None:
    """Raise SessionError for a module whose state is not kept."""
    module = trainer.lightning_module
    if module._compiler_ctx is not None or module._compiled_call_impl is not None:
        raise SessionError(
            "Lightning: a module that is compiled as a whole is not supported: torch cannot trace self.log "
            "in what DistributedDataParallel calls, with and without Holdfast. Compile its parts, as in "
            "self.layers = torch.compile(self.layers)"
        )
    sharded = next((name for name, each in module.named_parameters() if isinstance(each, DTensor)), None)
    if sharded is not None:
        raise SessionError(
            f"Lightning: the parameter {sharded} is a DTensor (fully_shard, tensor parallel): sharded state "
            "is not supported under HoldfastStrategy; use a loop of your own with Session"
        )


def _check_callbacks(callbacks: Iterable[Any]) -> None:
    for callback in callbacks:
        for kind, why in _CALLBACKS.items():
            if isinstance(callback, kind):
                raise SessionError(
                    f"Lightning: the callback {type(callback).__name__} is not supported: {why}"
                )


def resumes(trainer: Any) -> bool:
    """Whether Lightning has read a checkpoint of its own to go on from."""
    return bool(trainer._checkpoint_connector._loaded_checkpoint or trainer.fit_loop.restarting)


def refuse_checkpoint() -> NoReturn:
    """Raise SessionError."""
    raise SessionError(
        "Lightning: fit(ckpt_path=...) is not supported: a job goes on by itself from --storage. To "
        "begin with other weights, load them into the module before fit()"
    )


def refuse_gradients(module: Any) -> NoReturn:
    """Raise SessionError."""
    raise SessionError(
        f"Lightning: {type(module).__name__}.optimizer_zero_grad leaves gradients of the step before: no "
        "state has them when a rank dies. Clear all of them, and add gradients up by accumulate_grad_batches"
    )


def check_optimizers(optimizers: Iterable[Any]) -> None:
    """Raise SessionError for an optimizer whose state is divided among ranks by itself."""
    for each in optimizers:
        if hasattr(each, "consolidate_state_dict"):  # Lightning recognizes it by this too
            raise SessionError("Lightning: ZeroRedundancyOptimizer is not supported: use a plain optimizer")


def check_loader(fetcher: Any) -> None:
    """Raise SessionError for train data whose position cannot be known."""
    name = type(fetcher).__name__
    if name == "_DataLoaderIterDataFetcher":
        raise SessionError(
            "Lightning: training_step(dataloader_iter) is not supported: it fetches as it likes. Take a batch"
        )
    if fetcher.length is None or fetcher.length == float("inf"):
        raise SessionError(
            "Lightning: the train loader has no length, so Lightning fetches ahead of the step "
            "(_PrefetchDataFetcher): give its data set a __len__"
        )
    loaders = fetcher.combined_loader.flattened
    if len(loaders) != 1:
        raise SessionError("Lightning: several train loaders are not supported: combine their data sets")
    if type(loaders[0]).__iter__ is not DataLoader.__iter__:
        kind = type(loaders[0]).__name__
        raise SessionError(f"Lightning: a {kind} for training is not supported: use torch's DataLoader")
