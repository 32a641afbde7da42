"""The runs of Lightning's own loggers, for Trainer and for Fabric."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

from lightning.fabric.loggers import CSVLogger, TensorBoardLogger
from lightning.fabric.utilities.logger import _add_prefix
from lightning.pytorch import loggers as of_trainer

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.integrations.runs import Found, LoggerRun

_TOLD = (
    "%s: calls to it are made once each, but it begins anew in another process that becomes rank 0. One run "
    "per job have TensorBoardLogger, CSVLogger, MLFlowLogger and WandbLogger (none that inherits from them)"
)
log = logging.getLogger("holdfast.sdk")


def run_of(logger: Any) -> LoggerRun | None:
    """The run of a logger; None, and a warning, for one that Holdfast does not keep.

    Raises SessionError for what a logger cannot do under Holdfast."""
    kind = _KINDS.get(type(logger))
    if kind is None:
        log.warning(_TOLD, type(logger).__name__)
        return None
    return kind(logger)


def _renamed(logger: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda values: dict(_add_prefix(values, logger._prefix, logger.LOGGER_JOIN_CHAR))


def _versioned(logger: Any) -> tuple[Callable[[], Found], Callable[[Found], None]]:
    """The folder of a logger's version, and how the logger is told of it."""

    def place() -> Found:
        version = logger.version
        return {"folder": logger.log_dir, "version": version}

    def tell(found: Found) -> None:
        logger._version = found["version"]

    return place, tell


def _tensorboard(logger: Any) -> LoggerRun:
    from holdfast.integrations.runs.tensorboard import TensorBoardRun

    place, tell = _versioned(logger)
    return TensorBoardRun(place, rename=_renamed(logger), tell=tell)


def _csv(logger: Any) -> LoggerRun:
    from holdfast.integrations.runs.csv_file import CsvRun

    place, tell_version = _versioned(logger)

    def tell(found: Found) -> None:
        tell_version(found)
        if logger._experiment is None:
            logger._experiment = _continued(logger)

    return CsvRun(place, rename=_renamed(logger), tell=tell)


def _continued(logger: Any) -> Any:
    """A writer for hyperparameters, which leaves the lines that are there."""
    from lightning.pytorch.loggers.csv_logs import ExperimentWriter

    kind = type("Continued", (ExperimentWriter,), {"_check_log_dir_exists": lambda _: None})
    return kind(log_dir=logger.log_dir)


def _mlflow(logger: Any) -> LoggerRun:
    from holdfast.integrations.runs.mlflow import MlflowRun

    _refuse_model(logger)

    def create() -> Found:
        run_id = logger.run_id
        return {"uri": logger._tracking_uri, "run_id": run_id}

    def rename(values: dict[str, Any]) -> dict[str, Any]:
        named = _renamed(logger)(values).items()
        return {re.sub("[^a-zA-Z0-9_/. -]+", "", name): value for name, value in named}

    def tell(found: Found) -> None:
        logger._run_id = found["run_id"]

    return MlflowRun(create, rename=rename, tell=tell)


def _wandb(logger: Any) -> LoggerRun:
    from holdfast.integrations.runs.wandb import WandbRun

    _refuse_model(logger)
    if logger._experiment is not None:
        raise SessionError(
            "WandbLogger(experiment=...) under Holdfast is not supported: each process would begin a run: "
            "give project and name instead"
        )
    if logger._offline:
        os.environ["WANDB_MODE"] = "offline"

    def tell(found: Found) -> None:
        logger._id = logger._wandb_init["id"] = found["id"]
        logger._experiment = None  # the newest run of this process is found when it is asked for

    return WandbRun(logger._wandb_init, "trainer/global_step", rename=_renamed(logger), tell=tell)


def _refuse_model(logger: Any) -> None:
    if logger._log_model:
        raise SessionError(
            f"{type(logger).__name__}(log_model=...) under Holdfast is not supported: another process may be "
            "rank 0 then; upload the checkpoints after fit()"
        )


_KINDS: dict[type, Callable[[Any], LoggerRun]] = {
    TensorBoardLogger: _tensorboard,
    of_trainer.TensorBoardLogger: _tensorboard,
    CSVLogger: _csv,
    of_trainer.CSVLogger: _csv,
    of_trainer.MLFlowLogger: _mlflow,
    of_trainer.WandbLogger: _wandb,
}
