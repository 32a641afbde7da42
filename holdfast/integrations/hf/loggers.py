"""Take the places of the callbacks that log for Trainer: `report_to` stays the script's line.

Trainer's log_history is equal on all ranks, so it says what is to be logged; the callbacks say where, and
under which names. TensorBoard, W&B and MLflow are kept; of others the output tells."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from transformers.integrations import integration_utils as reporting

from holdfast.integrations.hf import refusals
from holdfast.integrations.runs.trainer_log import TrainerLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.integrations.runs import Found, LoggerRun
    from holdfast.session import Session

_NO = ("", "false", "0")
_SUMMARY = frozenset(
    {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}
)
"""Names that W&B has in a run's summary, not at a step."""
_TOLD = (
    "report_to=%r: Holdfast keeps tensorboard, wandb and mlflow. With %s, a second run begins when another "
    "process becomes rank 0"
)
log = logging.getLogger("holdfast.sdk")


class HistoryLog:
    """Logs the entries of log_history, each once; the session is told their losses, to show them."""

    def __init__(self, session: Session, trainer: Any) -> None:
        taken = {
            callback: _KINDS[type(callback)](trainer, callback)
            for callback in trainer.callback_handler.callbacks
            if type(callback) in _KINDS
        }
        for callback in taken:
            trainer.callback_handler.remove_callback(callback)
        for callback in trainer.callback_handler.callbacks:
            if type(callback) in _OTHERS:
                log.warning(_TOLD, _OTHERS[type(callback)], type(callback).__name__)
        self._trainer, self._loss = trainer, session.runtime.step_loss
        self._log = TrainerLog(session, list(taken.values()))
        self._given = 0  # how many entries of the history

    def track(self) -> None:
        """Track what is kept."""
        self._log.track()

    def begin(self, given: int) -> None:
        """A generation begins; this many entries of the history have been given, others are to be made again.
        On all ranks."""
        del self._trainer.state.log_history[given:]
        self._log.drop()
        self._log.begin()
        self._given = given

    def settle(self, agreed: int) -> None:
        """A step is about to end, and all ranks agree on this many entries of the history."""
        self._give(agreed)
        self._log.settle(self._log.calls())

    def completed(self) -> None:
        """A step has ended."""
        self._log.completed()

    def finish(self) -> None:
        """The training, or an evaluation of its own, is over: write what is left."""
        if self._log:
            self._give(len(self._trainer.state.log_history))
            self._log.finish()

    def _give(self, until: int) -> None:
        for entry in self._trainer.state.log_history[self._given : until]:
            self._log.log_all(entry["step"], {name: value for name, value in entry.items() if name != "step"})
            loss = entry.get("loss")
            if isinstance(loss, float):
                self._loss.tell(loss)
        self._given = until


def _tensorboard(trainer: Any, callback: Any) -> LoggerRun:
    from holdfast.integrations.runs.tensorboard import TensorBoardRun

    if callback.tb_writer is not None:
        refusals.refuse("TensorBoardCallback(tb_writer=...)", 'write report_to="tensorboard"')

    def place() -> Found:
        callback.on_train_begin(trainer.args, _FIRST, trainer.control, model=trainer.model)
        callback.tb_writer.close()
        return {"folder": str(callback.logging_dir)}

    return TensorBoardRun(place, rename=reporting.rewrite_logs)


def _wandb(trainer: Any, callback: Any) -> LoggerRun:
    import wandb

    from holdfast.integrations.runs.wandb import WandbRun

    if wandb.run is not None:
        refusals.refuse("wandb.init() in the script", "each process would begin a run: leave it to report_to")
    for name in ("WANDB_LOG_MODEL", "WANDB_WATCH"):
        if os.environ.get(name, "").lower() not in _NO:
            refusals.refuse(f"{name}={os.environ[name]}", "it would be sent twice: unset it")
    options = {"project": os.environ.get("WANDB_PROJECT", "huggingface"), "name": trainer.args.run_name}

    def rename(values: dict[str, Any]) -> dict[str, Any]:
        lasting = {name: value for name, value in values.items() if name in _SUMMARY}
        wandb.run.summary.update(lasting)
        return dict(
            reporting.rewrite_logs({name: value for name, value in values.items() if name not in lasting})
        )

    def opened(_run: Any) -> None:
        callback.setup(trainer.args, _FIRST, trainer.model)

    return WandbRun(options, "train/global_step", opened, rename=rename)


def _mlflow(trainer: Any, callback: Any) -> LoggerRun:
    import mlflow

    from holdfast.integrations.runs.mlflow import MlflowRun, apart

    if mlflow.active_run() is not None:
        refusals.refuse("mlflow.start_run() in the script", "each process would begin a run: leave it out")
    if os.environ.get("HF_MLFLOW_LOG_ARTIFACTS", "").lower() not in _NO:
        refusals.refuse("HF_MLFLOW_LOG_ARTIFACTS", "upload the checkpoints after the training")

    def create() -> Found:
        def begun() -> Any:
            callback.setup(trainer.args, _FIRST, trainer.model)
            return mlflow.active_run()

        found = apart(begun)
        callback._auto_end_run = False
        mlflow.flush_async_logging()
        return {"uri": mlflow.get_tracking_uri(), "run_id": found.info.run_id}

    return MlflowRun(create)


_FIRST: Any = SimpleNamespace(
    is_world_process_zero=True,
    is_hyper_param_search=False,
    trial_name=None,
    global_step=0,
    logging_steps=0,
)
"""What callbacks ask of the state when they begin a run."""
_KINDS: dict[type, Callable[[Any, Any], LoggerRun]] = {
    reporting.TensorBoardCallback: _tensorboard,
    reporting.WandbCallback: _wandb,
    reporting.MLflowCallback: _mlflow,
}
_WITHOUT_RUNS = ("kubeflow",)
_OTHERS: dict[type, str] = {
    kind: name
    for name, kind in reporting.INTEGRATION_TO_CALLBACK.items()
    if kind not in _KINDS and name not in _WITHOUT_RUNS
}
