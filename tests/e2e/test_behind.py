"""What a script does behind `train()`: it runs to its end, its exit code counts, and it is run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import ASKED_S, Run, running, until
from tests.e2e.standing import Job, submitted
from tests.exhaustive import all_but

if TYPE_CHECKING:
    from pathlib import Path

TRAINS = """
import os, pathlib, sys, time
import torch
from holdfast import Session
folder = pathlib.Path(sys.argv[1])
session = Session(backend="gloo")
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(6):
        ddp(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return session.step

assert train() == 6
def note(word):
    with (folder / word).open("a") as file:
        file.write(f"{os.environ['RANK']} {os.getpid()}\\n")
def wait_for(word, rank=0):
    while session.rank == rank and not (folder / word).exists():
        time.sleep(0.02)
"""

SAVES = """
note("behind")
wait_for("go")
time.sleep(0.7)
torch.save(model.state_dict(), folder / f"model-{session.rank}.part")
(folder / f"model-{session.rank}.part").rename(folder / f"model-{session.rank}.pt")
"""

RAISES = """
note("behind")
if session.rank == 1:
    raise ValueError("the evaluation is wrong")
"""

EXITS = """
note("behind")
sys.exit(3 if session.rank == 1 else 0)
"""

TWO = ("--nnodes", "2", "--nproc-per-node", "1")


def lines(run: Run | Job, word: str) -> list[list[str]]:
    path: Path = run.folder / word
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def tries(run: Run | Job, rank: int) -> int:
    """How often the code behind the function has run on this rank."""
    return sum(line[0] == str(rank) for line in lines(run, "behind"))


def holdfast(run: Run, *words: str) -> subprocess.CompletedProcess[str]:
    address = run.layout.read_card()["coordinator"]
    command = [sys.executable, "-P", "-m", "controlplane", *words, "--coordinator", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def comes_back(run: Run, name: str, old: int) -> bool:
    return run.pid_of(name) not in (0, old)


def phase(run: Run | Job) -> str:
    states = run.journal("JobChanged")
    return str(states[-1]["state"]["phase"]) if states else ""


def test_what_follows_train_runs_to_its_end() -> None:
    """The job stays there for as long as it takes; its spares never run that code."""
    with running(*TWO, "--spares", "1", script=TRAINS + SAVES) as run:
        until(lambda: len(lines(run, "behind")) == 2 and phase(run) == "leaving", lambda: run.output)
        assert "leaving" in holdfast(run, "get", "jobs").stdout
        assert run.process is not None and run.process.poll() is None
        (run.folder / "go").touch()
        assert run.end() == 0, run.output
        assert sorted(path.name for path in run.folder.glob("*.pt")) == ["model-0.pt", "model-1.pt"]
        assert [tries(run, rank) for rank in (0, 1)] == [1, 1] and len(lines(run, "behind")) == 2
        assert run.traces() == []


def test_an_exception_behind_train_fails_the_job_with_its_traceback() -> None:
    with submitted(*TWO, "--max-restarts", "1", script=TRAINS + RAISES) as run:
        assert run.end() == 1, run.output
        assert "ValueError: the evaluation is wrong" in run.output and "script.py" in run.output
        assert tries(run, 1) == 2, "it is tried again as often as --max-restarts says"


def test_an_exit_code_behind_train_fails_the_job() -> None:
    with submitted(*TWO, "--max-restarts", "1", script=TRAINS + EXITS) as run:
        assert run.end() == 1, run.output
        assert "ended with code 3" in run.output
        assert tries(run, 1) == 2


@pytest.mark.parametrize("storage", all_but(1, [True, False]))
def test_a_rank_killed_behind_train_has_its_script_run_again(storage: bool) -> None:
    """The state is the final one: nothing is trained again, and train() has its value."""
    with submitted(*TWO, script=TRAINS + SAVES, storage=storage) as run:
        until(lambda: len(lines(run, "behind")) == 2 and phase(run) == "leaving", lambda: run.output)
        pid = next(int(line[1]) for line in lines(run, "behind") if line[0] == "0")
        os.kill(pid, signal.SIGKILL)
        until(lambda: tries(run, 0) == 2, lambda: run.output)
        (run.folder / "go").touch()
        assert run.end() == 0, run.output
        assert (run.folder / "model-0.pt").exists() and (run.folder / "model-1.pt").exists()
        told = [body["incident"] for body in run.journal("IncidentChanged")]
        assert told[-1]["outcome"] == "recovered" and told[-1]["lost_steps"] == 0, told[-1]
        if not storage:
            assert told[-1]["restored"].startswith("memory"), told[-1]


def test_what_runs_behind_train_outlives_leader_and_agent() -> None:
    with running(*TWO, script=TRAINS + SAVES) as run:
        until(lambda: len(lines(run, "behind")) == 2 and phase(run) == "leaving", lambda: run.output)
        for name in ("coordinator", "n0"):
            old = run.pid_of(name)
            assert old, f"{name} is not there"
            os.kill(old, signal.SIGKILL)
            until(partial(comes_back, run, name, old), f"{name} is back")
        until(
            lambda: "leaving" in holdfast(run, "get", "jobs").stdout,
            "the new leader's word",
            pause_s=ASKED_S,
        )
        (run.folder / "go").touch()
        assert run.end() == 0, run.output
        assert [tries(run, rank) for rank in (0, 1)] == [1, 1]


def test_a_job_that_is_stopped_behind_train_ends() -> None:
    with running(*TWO, script=TRAINS + SAVES) as run:
        until(lambda: len(lines(run, "behind")) == 2 and phase(run) == "leaving", lambda: run.output)
        assert holdfast(run, "stop", run.job).returncode == 0
        assert run.end() == 1, run.output
        assert "stopped" in run.output and not (run.folder / "model-0.pt").exists()
        assert run.traces() == []


def test_submit_waits_for_what_is_behind_train_and_tells_how_it_ended() -> None:
    once, go = ("--max-restarts", "0"), {"go": ""}
    with submitted(*once, script=TRAINS + SAVES, files=go) as saved:
        assert saved.end() == 0 and f"job {saved.job} finished" in saved.told, saved.output
        assert (saved.folder / "model-0.pt").exists()
    raises = RAISES.replace("session.rank == 1", "True")
    with submitted(*once, script=TRAINS + raises, files=go) as raised:
        assert raised.end() == 1 and "the evaluation is wrong" in raised.told, raised.output
