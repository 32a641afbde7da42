"""Processes that end when the test run does, however: a `timeout` that kills pytest runs no finalizer."""

from __future__ import annotations

import os
import signal
import sys

from controlplane.cli.local import leash


def leashed(argv: list[str], number: int = signal.SIGTERM) -> list[str]:
    """The same program; the kernel sends it `number` when the thread that started it is no more. So start it
    from one that stays, as the main thread does."""
    tie = [sys.executable, "-I", "-S", leash.__file__, str(int(number)), str(os.getpid())]
    return [*tie, *argv]
