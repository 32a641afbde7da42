"""Start processes that end when the test run ends, in whatever way: when `timeout` kills pytest, no finalizer
runs."""

from __future__ import annotations

import signal

from controlplane import parent_death


def leashed(argv: list[str]) -> list[str]:
    """The same command; the kernel sends it SIGTERM when the thread that started it is gone."""
    return parent_death.with_parent_death_signal(argv, signal.SIGTERM)
