"""Agents are stopped around a kill: nobody tells the survivors, who swallow what collectives raise."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.e2e.cli_running import Run, running, until
from tests.e2e.standing import Job, submitted

SCRIPT = (Path(__file__).parents[1] / "sdk" / "swallowing.py").read_text()
STOPPED_S = 2.0


def digests(run: Run | Job) -> list[str]:
    assert run.end() == 0, run.output
    return [json.loads(path.read_text())["digest"] for path in sorted(run.folder.glob("result.*.json"))]


def script(run_how: str, **kill: int) -> str:
    """The script as `holdfast run` starts it: what it is told comes with it."""
    head = "import os, sys\n"
    head += f"os.environ.update(OUT=sys.argv[1], HOW={run_how!r}, KILL={json.dumps(kill)!r})\n"
    return SCRIPT.replace("from __future__ import annotations\n", head)


def test_agents_that_are_stopped_around_the_kill_change_nothing() -> None:
    flags = ("--nnodes", "2", "--nproc-per-node", "1", "--spares", "1", "--snapshot-every", "5")
    with submitted(*flags, script=script("sync")) as run:
        whole = digests(run)
    assert len(whole) == 2 and len(set(whole)) == 1
    with running(*flags, script=script("sync", rank=1, step=6, hold=1)) as run:
        until((run.folder / "at").exists, lambda: run.output)
        agents = [run.pid_of(name) for name in ("n0", "n1")]
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        (run.folder / "go").touch()
        until((run.folder / "killed").exists, lambda: run.output)
        time.sleep(STOPPED_S)  # for so long nobody tells anybody
        for pid in agents:
            os.kill(pid, signal.SIGCONT)
        assert digests(run) == whole
        assert "rank 1" in run.output and "killed at step" in run.output
