"""No rank outlives the test session that forked it, however that session ends, nor its job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.local.processes import is_running
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

ROOT = Path(__file__).resolve().parents[2]
KINDS = ROOT / "tests" / "sdk" / "clean" / "kinds.py"
SESSION = """
import os, sys, time
from pathlib import Path
from tests.sdk.zygote import Zygote

folder = Path(sys.argv[1])
zygote = Zygote()
(folder / "rank.py").write_text("import time\\ntime.sleep(600)\\n")
rank = zygote.spawn(folder / "rank.py", dict(os.environ), folder / "log")
(folder / "new").write_text(f"{zygote.pid} {rank}")
(folder / "new").rename(folder / "pids")
time.sleep(600)
"""


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


@pytest.mark.parametrize("killed", ["session", "server"])
def test_ranks_end_with_a_session_that_is_cut_off(killed: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SESSION, str(tmp_path)]
    session = subprocess.Popen(command, cwd=ROOT)
    pids: list[int] = []
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / "pids").exists():
            assert session.poll() is None and time.monotonic() < deadline, "no rank was forked"
            time.sleep(0.05)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        server, rank = pids
        assert is_running(server) and is_running(rank)
        os.kill(session.pid if killed == "session" else server, signal.SIGKILL)
        if killed == "session":
            session.wait()
        assert gone(rank, within_s=60), f"the rank outlives its {killed}"
        assert gone(server, within_s=60)
    finally:
        session.kill()
        session.wait()
        for pid in pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_rank_that_is_there_only_after_the_end_ends_too(zygote: Zygote) -> None:
    with Node(zygote, KINDS, 1, KIND="ema", KILL="[]") as node:
        node.run(until=lambda: node.complete)
        node.start()
        node.run(timeout_s=60)
        assert len(node.members) == 2
