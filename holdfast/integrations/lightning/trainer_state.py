"""Read what one rank's trainer knows at the end of a step, as plain data, and make a trainer know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loops.loop import _Loop

from holdfast.integrations.lightning import results
from holdfast.integrations.plain import captured, copied, is_plain, put_back

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHECKPOINT = ("dirpath", "_last_global_step_saved", "_last_checkpoint_saved", "_defer_save_until_validation")
"""What ModelCheckpoint needs besides its state_dict, so as to save each checkpoint once."""

_CONNECTOR = (
    "_progress_bar_metrics",
    "_logged_metrics",
    "_callback_metrics",
    "_first_loop_iter",
    "_current_fx",
)
_TRAINER = ("should_stop", "accumulate_grad_batches")

MOVES = frozenset(_TRAINER)
"""What Lightning itself changes of the settings below."""


def capture(trainer: Any) -> dict[str, Any]:
    """What this rank's trainer knows. Tensors are copies."""
    loop, module = trainer.fit_loop, trainer.lightning_module
    loops = loop.state_dict()
    loops["state_dict"].pop("combined_loader", None)
    found = {
        "loops": loops,
        "reloaded": loop._last_train_dl_reload_epoch,
        "trainer": {name: getattr(trainer, name) for name in _TRAINER},
        "connector": {name: getattr(trainer._logger_connector, name) for name in _CONNECTOR},
        "schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "precision": trainer.precision_plugin.state_dict(),
        "callbacks": [callback.state_dict() for callback in trainer.callbacks],
        "checkpoints": [
            {name: getattr(each, name) for name in _CHECKPOINT if hasattr(each, name)}
            for each in trainer.checkpoint_callbacks
        ],
        "data": trainer.datamodule.state_dict() if trainer.datamodule is not None else {},
        "results": results.capture(loop.epoch_loop._results),
        "metrics": results.capture_metrics(module),
        "attributes": attributes(trainer),
    }
    return {name: copied(value) for name, value in found.items()}


def apply(trainer: Any, kept: dict[str, Any]) -> None:
    """Make this rank's trainer know it."""
    loop, module = trainer.fit_loop, trainer.lightning_module
    kept = {name: copied(value) for name, value in kept.items()}
    loop.load_state_dict(kept["loops"])
    calm(loop)
    loop._last_train_dl_reload_epoch = kept["reloaded"]
    for owner, name in ((trainer, "trainer"), (trainer._logger_connector, "connector")):
        for key, value in kept[name].items():
            setattr(owner, key, value)
    for config, state in zip(trainer.lr_scheduler_configs, kept["schedulers"], strict=True):
        config.scheduler.load_state_dict(state)
    trainer.precision_plugin.load_state_dict(kept["precision"])
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is not None and scaler.is_enabled():  # left after unscaling, it would not unscale again
        scaler._per_optimizer_states.clear()
    for callback, state in zip(trainer.checkpoint_callbacks, kept["checkpoints"], strict=True):
        vars(callback).update(state)
    for callback, state in zip(trainer.callbacks, kept["callbacks"], strict=True):
        callback.load_state_dict(state)
    if trainer.datamodule is not None:
        trainer.datamodule.load_state_dict(kept["data"])
    results.apply(loop.epoch_loop._results, kept["results"], trainer)
    results.apply(loop.epoch_loop.val_loop._results, {}, trainer)
    results.apply_metrics(module, kept["metrics"])
    set_attributes(trainer, kept["attributes"])


def attributes(trainer: Any) -> list[dict[str, Any]]:
    """The public plain attributes of the script's own objects, with the names of their others. They are no
    copies."""
    return [captured(_attributes(each), dict(_public(each))) for each in _owners(trainer)]


def set_attributes(trainer: Any, kept: list[dict[str, Any]]) -> None:
    """Make those attributes what they were."""
    for owner, values in zip(_owners(trainer), kept, strict=True):
        put_back(owner, values, _attributes(owner))


def settings_of(trainer: Any) -> list[Any]:
    """What a script may change in the training: options of the trainer, limits of its loops, and
    hyperparameters."""
    own = [getattr(each, "hparams", None) for each in (trainer.lightning_module, trainer.datamodule)]
    return [trainer, trainer.fit_loop, trainer.fit_loop.epoch_loop, *own]


def calm(loop: Any) -> None:
    """Make Lightning's loops not look for the place at which their state was saved: it is known."""
    loop._restarting = loop._loaded_from_state_dict = loop._resuming_from_checkpoint = False
    loop.reset_restart_stage()
    for inner in vars(loop).values():
        if isinstance(inner, _Loop):
            calm(inner)


def _owners(trainer: Any) -> list[Any]:
    """The script's own objects whose plain attributes are kept: the module, and callbacks of its own."""
    return [trainer.lightning_module, *own_callbacks(trainer)]


def own_callbacks(trainer: Any) -> list[Any]:
    """The script's own callbacks."""
    own = [each for each in trainer.callbacks if not type(each).__module__.startswith("lightning.")]
    return [each for each in own if not isinstance(each, Checkpoint)]


def keeps(owner: Any, name: str, value: Any) -> bool:
    """Whether this attribute of the module, a part of it, a callback or a sampler is kept, or the callback
    or the data module says how."""
    if isinstance(owner, Callback) and type(owner).state_dict is not Callback.state_dict:
        return True
    if isinstance(owner, LightningDataModule):
        return type(owner).state_dict is not LightningDataModule.state_dict
    if not isinstance(owner, LightningModule | Callback):
        return False
    return not name.startswith("_") and is_plain(value)


def _attributes(owner: Any) -> dict[str, Any]:
    """The public attributes of an object that are plain data: counters, lists of outputs."""
    return {name: value for name, value in _public(owner) if is_plain(value)}


def _public(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if not name.startswith("_") and name not in _OF_MODULES:
            yield name, value


_OF_MODULES = frozenset(
    {"training", "prepare_data_per_node", "allow_zero_length_dataloader_with_multiple_devices"}
)
