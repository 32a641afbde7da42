"""Show the progress of long work on standard error, as bytes and rate, if it is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from holdfast.neutral import neutral, raw

if TYPE_CHECKING:
    from collections.abc import Iterator


class Bar(Protocol):
    """Receives the progress of the work, from any thread."""

    def advance(self, nbytes: int) -> None:
        """`nbytes` more are done."""


class _Silent:
    """Shows nothing, because standard error is not a terminal."""

    def advance(self, nbytes: int) -> None:
        """Do nothing."""


@contextmanager
def shown_bar(doing: str, total: int) -> Iterator[Bar]:
    """Show a bar while the block runs; none when standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (
        TextColumn(neutral(doing)),
        BarColumn(),
        DownloadColumn(binary_units=True),
        Speed(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=raw(sys.stderr)), transient=True) as progress:
        yield _Rich(progress, progress.add_task(doing, total=total))


class _Rich:
    """A progress bar of rich."""

    def __init__(self, progress: object, task: object) -> None:
        self._progress, self._task = progress, task

    def advance(self, nbytes: int) -> None:
        """Move the bar."""
        self._progress.advance(self._task, nbytes)  # type: ignore[attr-defined]
