"""Take the places of accelerate's trackers that have one run per job under Holdfast."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from accelerate import tracking

from holdfast.integrations.accelerate import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.integrations.own_loop import OwnLoop
    from holdfast.integrations.runs import Found, LoggerRun

_TOLD = (
    "log_with=%s: calls to it are made once each, but it begins anew in another process that becomes rank 0. "
    "One run per job have tensorboard, wandb and mlflow"
)
_OPTIONS = "accelerator.log(log_kwargs=...) is left out for %s under Holdfast"
log = logging.getLogger("holdfast.sdk")


class KeptTracker(tracking.GeneralTracker):
    """Logs numbers to the run of a job."""

    requires_logging_directory = False

    def __init__(self, name: str, loop: OwnLoop, index: int) -> None:
        super().__init__(_blank=True)
        self.name, self._loop, self._index, self._told = name, loop, index, False

    @property
    def tracker(self) -> Any:
        """Refused: the run is opened in a thread, where rank 0 is."""
        refusals.refuse(f"the tracker of {self.name} itself", "log numbers, by accelerator.log")

    def log(self, values: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
        """Log numbers."""
        if options and not self._told:
            self._told = True
            log.warning(_OPTIONS, self.name)
        self._loop.log(self._index, step, values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("log_"):
            refusals.refuse(f"{name} of the tracker {self.name}", "only numbers are kept")
        raise AttributeError(name)


def is_kept(asked: Any) -> bool:
    """Whether `log_with` names a tracker that is kept."""
    return not isinstance(asked, tracking.GeneralTracker) and str(asked) in _KINDS


def tell_of(others: Iterable[Any]) -> None:
    """Warn of trackers that are not kept."""
    for each in others:
        log.warning(_TOLD, each.name if isinstance(each, tracking.GeneralTracker) else each)


def run_of(name: str, project: str, folder: Any, config: Any, options: Mapping[str, Any]) -> LoggerRun:
    """The run of a tracker that is kept, as init_trackers describes it."""
    return _KINDS[name](project, folder, config, options)


def _begun(tracker: Any, config: Any) -> Any:
    tracker.start()
    if config is not None:
        tracker.store_init_configuration(config)
    return tracker


def _tensorboard(project: str, folder: Any, config: Any, options: Mapping[str, Any]) -> LoggerRun:
    from holdfast.integrations.runs.tensorboard import TensorBoardRun

    def place() -> Found:
        _begun(tracking.TensorBoardTracker(project, folder, **options), config).finish()
        return {"folder": os.path.join(folder, project)}

    return TensorBoardRun(place)


def _mlflow(project: str, _folder: Any, config: Any, options: Mapping[str, Any]) -> LoggerRun:
    import mlflow

    from holdfast.integrations.runs.mlflow import MlflowRun, apart

    def create() -> Found:
        tracker = apart(lambda: _begun(tracking.MLflowTracker(project, **options), config))
        return {"uri": mlflow.get_tracking_uri(), "run_id": tracker.tracker.info.run_id}

    return MlflowRun(create)


def _wandb(project: str, _folder: Any, config: Any, options: Mapping[str, Any]) -> LoggerRun:
    from holdfast.integrations.runs.wandb import WandbRun

    def opened(run: Any) -> None:
        if config is not None:
            run.config.update(config, allow_val_change=True)

    return WandbRun({"project": project, **options}, "global_step", opened=opened)


_KINDS: dict[str, Callable[..., LoggerRun]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
