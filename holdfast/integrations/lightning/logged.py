"""Let each logger call take effect once, and all processes of rank 0 write to one run of each logger.

The calls to Lightning's own loggers are written when their step has ended (`trainer_log`). Those to other
loggers are made at once: in a step that runs again they are counted again, and left out if they were made
before. A new process of rank 0 knows from the others which ones the dead one has certainly made; such a
logger may then get the same line twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers.utilities import _log_hyperparams

from holdfast.integrations import plain
from holdfast.integrations.lightning import loggers
from holdfast.integrations.runs.trainer_log import TrainerLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.integrations.lightning.progress import FitProgress
    from holdfast.integrations.runs import LoggerRun
    from holdfast.session import Session


class Loggers:
    """The loggers of a trainer, for all its calls of fit: those that are kept, and the others."""

    def __init__(self, trainer: Any, session: Session) -> None:
        self.others: list[Any] = []
        runs: list[LoggerRun] = []
        for logger in trainer.loggers:
            run = loggers.run_of(logger)
            if run is None:
                self.others.append(logger)
                continue
            logger.log_metrics = self._given_to(len(runs))
            runs.append(run)
        self._session, self.log = session, TrainerLog(session, runs)

    def _given_to(self, index: int) -> Callable[..., None]:
        def log_metrics(metrics: Any, step: int | None = None) -> None:
            if self._session.rank == 0:
                self.log.log(index, step, metrics)

        return log_metrics


class Logged:
    """Stands before the loggers of a trainer in one fit."""

    def __init__(self, trainer: Any, progress: FitProgress, kept: Loggers) -> None:
        self._trainer, self._progress = trainer, progress
        self._others, self.log = kept.others, kept.log
        self._made = 0  # calls that this process has made, or knows to have been made
        self._rank = -1  # in the generation before
        self._sealed = 0  # of those, the calls of steps that have ended
        self._before = False  # what is logged now comes before the first step, and is not counted
        for logger in self._others:
            logger.log_metrics = self._once(logger.log_metrics)

    def meet(self, session: Session, *, prepared: bool) -> bool:
        """Agree with the other ranks on one run of each logger, and on the folders of checkpoints.

        Returns whether any rank has been in an earlier generation. All ranks call it together."""
        exports = self._trainer.strategy.exports
        own = plain.dumps(
            {"prepared": prepared, "sealed": self._sealed, "written": exports.written, **self._identity()},
            "ranks",
        )
        rows = [plain.loads(row) for row in plain.gather(own, session.world_size, session.device)]
        earlier = [row for row in rows if row["prepared"]]
        known = (earlier or rows)[0]
        for logger, version in zip(self._others, known["versions"], strict=True):
            if version is not None:
                logger._version = version
        for callback, folder in zip(self._trainer.checkpoint_callbacks, known["folders"], strict=True):
            if folder is not None:
                callback.dirpath = folder
        written = [tuple(each) for row in rows for each in row["written"]]
        for path in exports.go_back(session.step, written) if session.rank == 0 else ():
            self._trainer.strategy.checkpoint_io.remove_checkpoint(path)
        if earlier and session.rank == 0 and self._rank != 0:
            self._made = max(row["sealed"] for row in earlier)
        self._rank = session.rank
        self.log.drop()
        self.log.begin()
        return bool(earlier)

    def hyperparameters(self) -> None:
        """Log the hyperparameters, but to no run that has them from before the job was started again."""
        trainer, every = self._trainer, self._trainer.loggers
        if self._progress.begun:
            trainer.loggers = self._others
        self._before = True
        try:
            _log_hyperparams(trainer)
        finally:
            trainer.loggers, self._before = every, False

    def flush(self) -> None:
        """A step is about to end: what it has logged shall survive this process."""
        if self._progress.logged > self._sealed:
            for logger in self._others:
                logger.save()

    def sealed(self, calls: bytes) -> None:
        """A step is about to end: its calls have been made on all ranks, and are these of rank 0."""
        self._sealed = max(self._sealed, self._progress.logged)
        self.log.settle(calls)

    # ------------------------------------------------------------------ within

    def _identity(self) -> dict[str, Any]:
        callbacks = self._trainer.checkpoint_callbacks
        return {
            "versions": [_version(logger) for logger in self._others],
            "folders": [getattr(callback, "dirpath", None) for callback in callbacks],
        }

    def _once(self, write: Callable[..., Any]) -> Callable[..., None]:
        def once(metrics: Any, step: int | None = None) -> None:
            if self._before:
                write(metrics=metrics, step=step)
                return
            self._progress.logged += 1
            if self._progress.logged > self._made:
                self._made = self._progress.logged
                write(metrics=metrics, step=step)

        return once


def _version(logger: Any) -> int | str | None:
    version = logger.version if hasattr(logger, "_version") else None
    return version if isinstance(version, int | str) else None
