"""Processes that end when the test run does, however: a `timeout` that kills pytest runs no finalizer."""

from __future__ import annotations

import signal

from controlplane import parent_death


def leashed(argv: list[str]) -> list[str]:
    """The same program, asked to end when the thread that started it is no more."""
    return parent_death.with_parent_death_signal(argv, signal.SIGTERM)
