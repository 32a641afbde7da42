"""Write and read JSON lines: workers write, the driver reads.

Standard library only, because workers import it before anything else."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]
"""One line: `t` (s, CLOCK_MONOTONIC, which all processes of a machine share), `event`, `pid` and more."""


class EventLog:
    """A file that belongs to one process. One write(2) per line, so that SIGKILL loses nothing written."""

    def __init__(self, folder: Path, **always: Any) -> None:
        path = folder / f"{os.getpid()}.jsonl"
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.always: Row = {"pid": os.getpid(), **always}

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one line. `fields` are added to those of the log itself."""
        row = {"t": time.monotonic(), "event": event, **self.always, **fields}
        os.write(self._descriptor, (json.dumps(row) + "\n").encode())


def read(folder: Path) -> list[Row]:
    """All complete lines below `folder`, ordered by time."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in lines(path)]
    return sorted(rows, key=lambda row: float(row["t"]))


def lines(path: Path) -> list[str]:
    """The complete lines of a file that grows: a last one that is half written is left out."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def newest(rows: Iterable[Row], event: str = "step") -> dict[int, Row]:
    """The last line of this event of each rank."""
    return {row["rank"]: row for row in rows if row["event"] == event}


def first(rows: Iterable[Row], event: str, wanted: Callable[[Row], bool]) -> dict[int, Row]:
    """The first line of this event of each rank for which `wanted` is true."""
    found: dict[int, Row] = {}
    for row in rows:
        if row["event"] == event and wanted(row):
            found.setdefault(row["rank"], row)
    return found


def poll(condition: Callable[[], bool], timeout_s: float, interval_s: float = 0.05) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_s)
    return True
