"""Lower the priority of threads that work beside the training."""

from __future__ import annotations

import contextlib
import os
import threading


def give_way(nice: int = 10) -> None:
    """Give this thread a priority, as a nice value; its helpers inherit it. One that is nicer already stays
    so: only root may take that back."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
