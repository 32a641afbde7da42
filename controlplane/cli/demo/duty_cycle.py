"""Slow a process down from outside: stop it again and again, for a few ms each time.

Whatever it does shall take `factor` times as long as on its peers; waiting for others shall not take longer.
The kernel counts for each process how long it has run, and how long it was ready and waited for a CPU. Both
together are its work; a process that waits for a message does neither. On a crowded machine the scheduler
makes up for stops: who was stopped gets a CPU sooner. So stops are not a fixed share of the time. The work of
the peers per time on a CPU shows how long the work of this process would have lasted; it is stopped until it
has lasted `factor` times that."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.pids import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_S = (0.005, 0.020)
"""How long a stop lasts, far less than a silence that anybody notices; on a crowded machine as many times
longer as work takes there, because the next stop may come that much later."""
RUN_S = 0.004
"""How long the process is left alone between two stops."""

LOOK_S = 0.001


class DutyCycle:
    """Slows one process down until `end`. `peers`: processes with the same work. `seed`: of the lengths of
    the stops. Raises OSError when there is no such process, or the kernel does not count."""

    def __init__(self, pid: int, peers: Sequence[int], factor: float, seed: int) -> None:
        self._factor, self._chance = factor, random.Random(seed)
        self._pid, self._peers = pid, tuple(peers)
        self._begin = {each: work_s(each) for each in (pid, *peers)}
        self._process = os.pidfd_open(pid)  # a number that no later process can have
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slow-{pid}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the process go on undisturbed."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            os.close(self._process)

    def _run(self) -> None:
        stopped_s = 0.0
        try:
            while not self._over.wait(RUN_S):
                crowded, lasted_s, meant_s = self._work()
                owed_s = meant_s - lasted_s - stopped_s
                if owed_s < STOP_S[0]:
                    continue
                signal.pidfd_send_signal(self._process, signal.SIGSTOP)
                self._until_stopped()
                began = time.monotonic()
                time.sleep(min(owed_s, crowded * self._chance.uniform(*STOP_S)))
                signal.pidfd_send_signal(self._process, signal.SIGCONT)
                stopped_s += time.monotonic() - began
        except (ProcessLookupError, FileNotFoundError):
            return  # one of them has ended

    def _until_stopped(self) -> None:
        """Wait until the stop takes effect: the process has to get a CPU for that, which may take a while."""
        while (state := fields(self._pid)[:1]) and state[0] not in "TZX":
            time.sleep(LOOK_S)

    def _work(self) -> tuple[float, float, float]:
        """How crowded the machine is: work per time on a CPU; how long the work of this process has lasted
        without the stops, and how long it shall have lasted with them."""
        ran_s, ready_s = self._since(self._pid)
        peers = [self._since(each) for each in self._peers]
        peers_ran_s = sum(ran for ran, _ in peers)
        crowded = 1.0 + (sum(ready for _, ready in peers) / peers_ran_s if peers_ran_s else 0.0)
        return crowded, ran_s + ready_s, self._factor * crowded * ran_s

    def _since(self, pid: int) -> tuple[float, float]:
        ran_s, ready_s = work_s(pid)
        began = self._begin[pid]
        return ran_s - began[0], ready_s - began[1]


def work_s(pid: int) -> tuple[float, float]:
    """How long the main thread of a process has run, and how long it was ready to and did not, in s."""
    ran, ready, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(ready) / 1e9
