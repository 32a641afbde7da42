"""Let each logger call take effect once, and all processes of rank 0 write to one run of each logger.

The calls of a step that runs again are counted again, and those that were made before are left out. A new
process of rank 0 knows from the others which calls the dead one has certainly made. The log of a step that
had not ended may then get the same line twice, except in a CSVLogger, which is read."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from holdfast.integrations.lightning import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.integrations.lightning.progress import FitProgress
    from holdfast.session import Session


class Logged:
    """Stands before the loggers of a trainer."""

    def __init__(self, trainer: Any, progress: FitProgress) -> None:
        self._trainer, self._progress = trainer, progress
        self._made = 0  # calls that this process has made, or knows to have been made
        self._rank = -1  # in the generation before
        self._sealed = 0  # of those, the calls of steps that have ended
        self._known: dict[int, set[tuple[tuple[str, str], ...]]] = {}  # by logger: lines of the dead process
        for logger in trainer.loggers:
            logger.log_metrics = self._once(logger, logger.log_metrics)

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
        for logger, version in zip(self._trainer.loggers, known["versions"], strict=True):
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
            self._go_on()
        self._rank = session.rank
        return bool(earlier)

    def flush(self) -> None:
        """A step is about to end: what it has logged shall survive this process."""
        if self._progress.logged > self._sealed:
            for logger in self._trainer.loggers:
                logger.save()

    def sealed(self) -> None:
        """A step has ended: its calls have been made, on all ranks."""
        self._sealed = max(self._sealed, self._progress.logged)

    # ------------------------------------------------------------------ within

    def _identity(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "versions": [_version(logger) for logger in trainer.loggers],
            "folders": [getattr(callback, "dirpath", None) for callback in trainer.checkpoint_callbacks],
        }

    def _once(self, logger: Any, write: Callable[..., Any]) -> Callable[..., None]:
        def once(metrics: Any, step: int | None = None) -> None:
            self._progress.logged += 1
            if self._progress.logged <= self._made:
                return
            self._made = self._progress.logged
            if id(logger) in self._known:
                if _line(logger, metrics, step) in self._known[id(logger)]:
                    return
                del self._known[id(logger)]
            write(metrics=metrics, step=step)

        return once

    def _go_on(self) -> None:
        """Go on with the files of the process that was rank 0 before."""
        for logger in self._trainer.loggers:
            if not isinstance(logger, CSVLogger):
                continue
            logger._experiment = writer = _Continued(log_dir=logger.log_dir)
            if not writer._fs.isfile(writer.metrics_file_path):
                continue
            with writer._fs.open(writer.metrics_file_path, "r", newline="") as file:
                reader = csv.DictReader(file)
                self._known[id(logger)] = {_filled(row) for row in reader}
                writer.metrics_keys = list(reader.fieldnames or ())


class _Continued(ExperimentWriter):
    """A writer that leaves the lines of the process before it."""

    def _check_log_dir_exists(self) -> None:
        """It exists."""


def _version(logger: Any) -> int | str | None:
    version = logger.version if hasattr(logger, "_version") else None
    return version if isinstance(version, int | str) else None


def _line(logger: Any, metrics: Any, step: int | None) -> tuple[tuple[str, str], ...]:
    prefix = f"{logger._prefix}{logger.LOGGER_JOIN_CHAR}" if logger._prefix else ""
    values = {f"{prefix}{name}": _number(value) for name, value in metrics.items()}
    return _filled({**values, "step": step})


def _filled(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in row.items() if value not in ("", None)))


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value
