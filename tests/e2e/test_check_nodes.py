"""With `--check-nodes act` real agents measure their nodes before ranks are put on them, and the job runs.

That a node whose CPU is limited is found slower than its peers and takes no ranks is not tested here on real
processes: its judges (`controlplane/analysis/node_checks.py`) rightly refuse to judge nodes that share one
machine. They need three peers; the checks of nodes that join together run at the same time, and a reading
during which other processes had more than 5 % of the CPU accuses nobody and is no peer. Four checks at once
on two busy CPUs measured 96 to 98 %. Even one after another, the load average of the machine has to be at
most 0.5 for each CPU, or the confidence is 0.5 and the node is used; the agents and the checks before it are
load enough on two CPUs. It takes four machines, or a quiet one with many CPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import ASKED_S, OBEDIENT, running, until

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run

FLAGS = ("--nproc-per-node", "1", "--check-nodes-timeout-s", "600", "--max-restarts", "3")
FAILED = "its process ended by signal 9"


def notes(run: Run, kind: str) -> list[str]:
    """The nodes about which something of this kind was noted, in order."""
    return [each["subject"] for each in run.journal("Note") if each["kind"] == kind]


def story(run: Run) -> str:
    return f"{run.journal('Note')}; {run.output[-4000:]}"


def holdfast(run: Run, *words: str) -> str:
    """What a command printed, and its complaints."""
    address = run.layout.read_card()["coordinator"]
    command = [sys.executable, "-P", "-m", "controlplane", *words, "--coordinator", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def measuring(run: Run, node: str) -> int:
    """The process that measures the CPU of a node, once it has written its first reading; 0: none has."""
    for pid in run.everything_below():
        try:
            log = Path(f"/proc/{pid}/fd/1").resolve()
            if log.name == "_check.cpu.log" and node in log.parts and log.stat().st_size:
                return pid
        except OSError:
            continue
    return 0


def restarted(run: Run) -> bool:
    return (run.folder / "0-1.pid").exists() and (run.folder / "1-1.pid").exists()


@pytest.mark.slow
def test_nodes_are_checked_before_they_take_ranks_and_one_that_fails_takes_none_until_it_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process that computes is killed, as by the kernel for want of memory. A failure checks both."""
    monkeypatch.setenv("HOLDFAST_CHECK_NODES", "act")
    with running("--nnodes", "2", *FLAGS, script=OBEDIENT) as run:
        os.kill(until(lambda: measuring(run, "n1"), lambda: story(run)), signal.SIGKILL)
        until(lambda: sorted(notes(run, "node_checked")) == ["n0", "n1"], lambda: story(run))
        waits = f"not to be used: n1 (its check found: cpu: {FAILED}"
        until(lambda: waits in holdfast(run, "status"), lambda: story(run), pause_s=ASKED_S)
        assert not list(run.folder.glob("*.pid"))
        for words in (("describe", "node", "n1"), ("events",)):
            shown = holdfast(run, *words)
            assert "node_checking: n1: it is new here" in shown, shown
            assert f"node_checked: n1: it is new here: cpu: {FAILED}" in shown, shown
        holdfast(run, "quarantine", "--release", "n1")
        run.rank_pid(0)
        pid, before = run.rank_pid(1), len(notes(run, "node_checked"))
        os.kill(pid, signal.SIGKILL)
        until(lambda: restarted(run), lambda: story(run))
        assert len(notes(run, "node_checked")) > before
        (run.folder / "done").touch()
        assert run.end() == 0, run.output[-4000:]
        assert not notes(run, "node_unchecked")


@pytest.mark.slow
def test_a_job_goes_on_without_the_node_whose_check_failed_and_why_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_NODES", "act")
    with running("--nnodes", "1:2", *FLAGS, script=OBEDIENT) as run:
        run.rank_pid(0)
        os.kill(run.rank_pid(1), signal.SIGKILL)
        os.kill(until(lambda: measuring(run, "n1"), lambda: story(run)), signal.SIGKILL)
        run.rank_pid(0, restart=1)
        why = holdfast(run, "why")
        assert f"not to be used: n1 (its check found: cpu: {FAILED}" in why, why
        assert not (run.folder / "1-1.pid").exists()
        (run.folder / "done").touch()
        assert run.end() == 0, run.output[-4000:]
