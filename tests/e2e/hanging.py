"""Run the `holdfast` command line in a process whose main thread a signal stops for ever.

SIGUSR1 waits, as a call does that never returns. SIGUSR2 computes, as a search does that never ends: no other
Python thread of the process runs meanwhile."""

from __future__ import annotations

import re
import signal
import sys
import time

from controlplane.cli.main import main

FOR_EVER_S = 1e6


def wait_for_ever(*_signal: object) -> None:
    """Return after days."""
    time.sleep(FOR_EVER_S)


def compute_for_ever(*_signal: object) -> None:
    """Return after years, in one call of a function in C."""
    re.match(r"(a+)+$", "a" * 64 + "b")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, wait_for_ever)
    signal.signal(signal.SIGUSR2, compute_for_ever)
    sys.exit(main())
