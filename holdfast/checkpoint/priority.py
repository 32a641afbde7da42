"""Lower the priority of threads that work beside the training."""

from __future__ import annotations

import contextlib
import os
import threading


def give_way(nice: int = 10) -> None:
    """Lower this thread's priority to this nice value; threads that it starts inherit it.

    A thread that is nicer already stays so: only root may raise a priority."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
