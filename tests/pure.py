"""Pure tests: no process of their own, no connection, nobody to wait for. No failure is a matter of time.

They are those below FOLDERS and in FILES; conftest.py gives them the mark `pure`. `make check` runs them, and
`make test` does not try them twice. The rule is held while they run: one that starts a process or opens a
connection fails. A test among them that has to is marked `process`, and is not pure."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = ("analysis", "core", "sim", "simulation", "golden")
FILES = frozenset(
    {
        *("agent/deciding/test_judging.py", "agent/deciding/test_aggregate.py"),
        *("agent/deciding/test_fencing.py", "agent/deciding/test_progress.py"),
        *("checkpoint/test_codec.py", "checkpoint/test_cutting.py", "checkpoint/test_rows.py"),
        *("checkpoint/test_sense.py", "checkpoint/test_typed.py"),
        *("daemon/test_bounds.py", "daemon/test_codec.py"),
        *("monitoring/test_times.py", "sdk/test_sampling.py", "workloads/test_judging.py"),
    }
)
"""Relative to this folder."""

NOT_PURE = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "socket.connect"}
)
"""Events by which Python tells of it (PEP 578)."""


def is_pure(path: Path, tests: Path) -> bool:
    """Whether the tests of this file, below the folder `tests`, are pure."""
    name = path.relative_to(tests).as_posix()
    return name.split("/")[0] in FOLDERS or name in FILES


class _Watch:
    """Python's audit hooks stay for ever; this one says nothing but while a pure test runs."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if self.on and event in NOT_PURE:
            raise AssertionError(f"a pure test may not do this: {event}; tests/pure.py says which are pure")


_WATCH = _Watch()


@contextmanager
def watched() -> Iterator[None]:
    """What runs inside may start no process and open no connection."""
    before, _WATCH.on = _WATCH.on, True
    try:
        yield
    finally:
        _WATCH.on = before
