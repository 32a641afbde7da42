"""Watch Lightning's Trainer: a callback that it finds through an entry point, and what it comes to."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback

from tests.frameworks import digests

if TYPE_CHECKING:
    from tests.frameworks.struck import Spy

_seen: dict[str, Any] = {}
"""The spy, and the newest trainer."""


class Recorder(Callback):  # type: ignore[misc]
    """Records what it is called with. `batches` is in no state_dict."""

    def __init__(self) -> None:
        self.batches = 0

    def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
        _seen["trainer"] = trainer

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.batches += 1
        whole = not trainer.fit_loop._should_accumulate()
        _say("on_train_batch_end" if whole else "on_substep_end", trainer.fit_loop.total_batch_idx)


def _say(event: str, step: int) -> None:
    _seen["spy"].begins(event, step)
    _seen["spy"].ended(event, step)


def _recorder(event: str) -> Any:
    def called(self: Any, trainer: Any, *_: Any, **__: Any) -> None:
        if not trainer.sanity_checking:
            _say(event, trainer.global_step)

    return called


for _event in (
    *("on_train_start", "on_train_epoch_start", "on_train_epoch_end", "on_train_end", "on_exception"),
    "on_before_optimizer_step",
    *("on_validation_start", "on_validation_batch_end", "on_validation_end", "on_save_checkpoint"),
    *("on_test_start", "on_test_batch_end", "on_test_end"),
    *("on_predict_start", "on_predict_batch_end", "on_predict_end"),
):
    setattr(Recorder, _event, _recorder(_event))


def recorders() -> list[Any]:
    """What the entry point gives to every Trainer."""
    return [Recorder()]


def install(spy: Spy) -> None:
    """Have every Trainer call back."""
    _seen["spy"] = spy
    folder = spy.folder / "observer.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "entry_points.txt").write_text(
        f"[lightning.pytorch.callbacks_factory]\nrecorder = {__name__}:recorders\n"
    )
    sys.path.append(str(spy.folder))


def came_to() -> dict[str, dict[str, str]]:
    """What the newest trainer of this process has come to."""
    trainer = _seen.get("trainer")
    if trainer is None:
        return {}
    (recorder,) = (each for each in trainer.callbacks if isinstance(each, Recorder))
    schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    return {
        "weights": digests.of(dict(trainer.lightning_module.state_dict())),
        "optimizer": digests.of([each.state_dict() for each in trainer.strategy.optimizers]),
        "scheduler": digests.of(
            [{k: v for k, v in each.items() if k != "lr_lambdas"} for each in schedulers]
        ),
        "scaler": digests.of(trainer.precision_plugin.state_dict()),
        "log": digests.of(_logged(trainer)) if trainer.is_global_zero else {},
        "checkpoints": digests.of(_checkpoints(trainer)) if trainer.is_global_zero else {},
        "progress": digests.of(
            {"step": trainer.global_step, "epoch": trainer.current_epoch, "batches": recorder.batches}
        ),
    }


def _logged(trainer: Any) -> list[dict[str, str]]:
    """The lines of all runs that the CSVLogger has made at rank 0. Another rank may read them too soon."""
    found: list[dict[str, str]] = []
    for path in sorted(Path(trainer.logger.root_dir).glob("*/metrics.csv")):
        with path.open(newline="") as file:
            found += csv.DictReader(file)
    return found


def _checkpoints(trainer: Any) -> dict[str, Any]:
    """The checkpoints of Lightning's own, read as a script without Holdfast reads them."""
    found = {}
    for path in sorted(Path(trainer.checkpoint_callback.dirpath).glob("*.ckpt")):
        content = torch.load(path, weights_only=True)
        parts = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "epoch", "global_step")
        found[path.name] = {part: content[part] for part in parts}
    return found
