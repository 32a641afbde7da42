"""Runs of loggers, which any process may open to go on with them, and which take no entry twice.

- tensorboard, csv_file, mlflow, wandb: one kind each
- trainer_log: all runs of a trainer

Whatever is in a run when it is opened stays: where a job goes back and computes other numbers
(`--nan-skip-window`), the old points of those steps stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from holdfast.integrations.log_writer import Logger

Found = dict[str, str | int]
"""What a process needs to find a run, and `first`: the number of the job's first entry in it."""
Rename = Callable[[dict[str, Any]], dict[str, Any]]
ENTRY = "holdfast/entry"
"""The name under which runs have the number of each entry."""
STEP = "holdfast/step"
"""The name under which an entry has the trainer's own step."""


class LoggerRun(ABC):
    """One run of a logger, whose `name` is for messages.

    - `rename(values)`: the numbers of an entry under the names that the logger gives them.
    - `tell(found)`: tells the framework's logger of the job's run, in every process and generation."""

    name: ClassVar[str]

    def __init__(self, rename: Rename = dict, tell: Callable[[Found], object] = bool) -> None:
        self.rename, self.tell = rename, tell

    @abstractmethod
    def make(self) -> Found:
        """Make the run. Called once in a job, by rank 0."""

    @abstractmethod
    def open(self, found: Found) -> Logger:
        """Open it in the thread of the writer, to go on with it. Steps are the numbers of entries."""


class BegunRun(LoggerRun):
    """A run that the framework begins: `begin()` does, and returns what a process needs to find the run, and
    what else `tell` takes."""

    def __init__(self, begin: Callable[[], Found], **names: Any) -> None:
        super().__init__(**names)
        self._begin = begin


def local(folder: str, name: str) -> Path:
    """A logger's folder as an absolute path. Raises SessionError for one of a remote storage."""
    if "://" in folder:
        raise SessionError(
            f"{name} under Holdfast: {folder} is not supported: give a path that all nodes have (a mount)"
        )
    return Path(folder).absolute()
