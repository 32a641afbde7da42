"""A test run that is killed leaves no cluster behind: not `holdfast run`, nor its daemons, nor its ranks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from controlplane.cli.local.processes import descendants, is_running
from tests.e2e.cli_running import until

ROOT = Path(__file__).parents[2]
_TEST = """
import time
from tests.e2e.cli_running import running
with running("--nproc-per-node", "1") as run:
    print(run.rank_pid(0), run.folder, run.layout.run_dir, flush=True)
    time.sleep(600)
"""


def test_a_killed_test_leaves_nothing_running() -> None:
    with subprocess.Popen([sys.executable, "-c", _TEST], cwd=ROOT, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        rank, folder, run_dir = test.stdout.readline().split()
        below = descendants(test.pid)
        assert int(rank) in below and len(below) > 4, "etcd, coordinator, agent, launcher, rank"
        os.kill(test.pid, signal.SIGKILL)
        left = list(below)

        def ended() -> bool:
            left[:] = [pid for pid in left if is_running(pid)]
            return not left

        until(ended, lambda: f"{left} of {below} run on")
    assert not Path(run_dir).exists(), "it was told to end, and has tidied up"
    shutil.rmtree(folder)
