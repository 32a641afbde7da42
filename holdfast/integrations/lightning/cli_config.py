"""Save the configuration of a LightningCLI once ranks are known.

Its callback saves it in `setup`, at rank 0. There no process has a rank yet, so nobody would."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from lightning.fabric.utilities.cloud_io import get_filesystem

log = logging.getLogger("holdfast.sdk")


def save_config(trainer: Any, stage: str) -> None:
    """Have each such callback save what it has not saved. All ranks call it together.

    A file that is there is left as it is, and told: it may be an older job's."""
    for callback in _savers(trainer):
        if callback.save_to_log_dir and not callback.overwrite:
            path = os.path.join(trainer.log_dir, callback.config_filename)
            there = trainer.is_global_zero and get_filesystem(path).isfile(path)
            if trainer.strategy.broadcast(there):
                callback.already_saved = True
                if trainer.is_global_zero:
                    log.warning("LightningCLI's configuration is not saved: %s is there already", path)
        callback.setup(trainer, trainer.lightning_module, stage)


def pass_over(trainer: Any) -> None:
    """Note that it is saved: the others did it, or this job before it was started again."""
    for callback in _savers(trainer):
        callback.already_saved = True


def _savers(trainer: Any) -> list[Any]:
    cli: Any = sys.modules.get("lightning.pytorch.cli")
    kinds = () if cli is None else (cli.SaveConfigCallback,)
    return [each for each in trainer.callbacks if isinstance(each, kinds)]
