"""Keep CPUs busy in bursts, as another program on the same machine would.

The bursts have nothing to do with the job: they begin and end whenever the seed says, and take time from
all of its processes alike."""

from __future__ import annotations

import os
import subprocess
import sys

BUSY_S = (0.2, 5.0)
"""How long a burst lasts."""
IDLE_S = (1.0, 10.0)
"""How long it is quiet between two bursts."""
_PROGRAM = """
import os, random, sys, time
chance, busy, idle = random.Random(int(sys.argv[1])), (float(sys.argv[2]), float(sys.argv[3])), \
(float(sys.argv[4]), float(sys.argv[5]))
while os.getppid() == int(sys.argv[6]):
    until = time.monotonic() + chance.uniform(*busy)
    while time.monotonic() < until:
        sum(range(10000))
    time.sleep(chance.uniform(*idle))
"""


class NoisyNeighbour:
    """One process that computes in bursts until `end`, or until this process has gone."""

    def __init__(self, seed: int) -> None:
        words = [str(each) for each in (seed, *BUSY_S, *IDLE_S, os.getpid())]
        self._process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *words])
        self.pid: int = self._process.pid

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
