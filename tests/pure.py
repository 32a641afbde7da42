"""Define the pure tests: those without processes, connections and waiting, which never fail for lack of time.

They are the tests below FOLDERS and in FILES; conftest.py gives them the mark `pure`. `make check` runs them,
and `make test` does not repeat them. The rule is enforced while they run: a pure test that starts a process
or opens a connection fails. A test in these files that must do so is marked `process`, and is not pure."""

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
        *("checkpoint/format/test_codec.py", "checkpoint/format/test_cutting.py"),
        *("checkpoint/format/test_rows.py", "checkpoint/format/test_sense.py"),
        *("checkpoint/format/test_typed.py", "cli/questions/test_top.py"),
        *(
            "daemon/test_bounds.py",
            "frameworks/test_cases.py",
            "frameworks/test_hf_parts.py",
            "sdk/test_arguments.py",
            "wire/test_codec.py",
        ),
        *("monitoring/test_times.py", "sdk/data/test_sampling.py", "workloads/test_judging.py"),
    }
)
"""Paths relative to this folder."""

NOT_PURE = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "socket.connect"}
)
"""The audit events (PEP 578) by which Python announces it."""


def is_pure(path: Path, tests: Path) -> bool:
    """Whether the tests of this file, below the folder `tests`, are pure."""
    name = path.relative_to(tests).as_posix()
    return name.split("/")[0] in FOLDERS or name in FILES


class _Watch:
    """An audit hook. Hooks cannot be removed; this one has no effect except while a pure test runs."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if self.on and event in NOT_PURE:
            raise AssertionError(f"a pure test may not do this: {event}; tests/pure.py says which are pure")


_WATCH = _Watch()


@contextmanager
def watched() -> Iterator[None]:
    """Let the code inside start no process and open no connection."""
    before, _WATCH.on = _WATCH.on, True
    try:
        yield
    finally:
        _WATCH.on = before
