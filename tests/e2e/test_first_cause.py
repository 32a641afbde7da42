"""The first cause of an incident, on real jobs: who raised, who was killed for want of memory, and what only
followed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cli_running import Run, running, until
from tests.e2e.standing import Job, submitted

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ("--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "100")
TRAINS = """
import os, pathlib, sys, time
import torch
from holdfast import Session

folder = pathlib.Path(sys.argv[1])
session = Session()
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
session.track(model=model, optimizer=optimizer)

def load(step):
    if (folder / f"raise-{session.rank}").exists():
        time.sleep(0.5)
        print("password=hunter2 and step", step, flush=True)
        raise ValueError("the sample is broken")  # the culprit

@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(1_000_000):
        optimizer.zero_grad()
        load(step)
        wrapped(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.03)
        if (folder / "done").exists():
            return

train()
"""
PLAIN = """
import os, pathlib, sys, time
import torch.distributed as dist
import torch

folder = pathlib.Path(sys.argv[1])
rank, life = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo")
print("rank", rank, "began", flush=True)

def look():
    if (folder / "raise-2").exists() and rank == 2 and life == "0":
        raise KeyError("no such column")  # the culprit
    if (folder / "exit-2").exists() and rank == 2 and life == "0":
        os._exit(137)

while not (folder / "done").exists():
    look()
    dist.all_reduce(torch.ones(8))
    time.sleep(0.05)
"""
HUNGRY = """
import os, pathlib, sys, time
folder, cgroup = pathlib.Path(sys.argv[1]), pathlib.Path("CGROUP")
rank, life = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
if rank == "1" and life == "0":
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
(folder / f"{rank}-{life}.pid").write_text(str(os.getpid()))
kept = []
while not (folder / "done").exists():
    if rank == "1" and life == "0" and (folder / "eat").exists():
        kept.append(bytearray(b"x" * (8 << 20)))
    time.sleep(0.02)
"""


def line_of(script: str, words: str) -> int:
    """The number of the line of a script that has these words."""
    return next(number for number, line in enumerate(script.splitlines(), 1) if words in line)


def cause(run: Run | Job) -> dict[str, Any]:
    """The newest first cause in the journal; {}: none yet."""
    found = run.journal("CauseFound")
    return found[-1] if found else {}


def why(run: Job) -> str:
    command = [sys.executable, "-P", "-m", "controlplane", "why", "--coordinator", run.cluster.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_rank_that_raises_is_named_with_its_line_and_what_comes_again_is_said() -> None:
    with submitted(*FLAGS, script=TRAINS) as run:
        until(lambda: run.journal("MemberStarted"), lambda: f"it trains; {run.output}")
        (run.folder / "raise-2").touch()
        until(lambda: cause(run), lambda: f"the first cause is found; {run.output}")
        first = run.journal("CauseFound")[0]
        script = str(run.folder / "script.py")
        assert (first["rank"], first["cause"]) == (2, "exception"), first
        assert (first["file"], first["line"]) == (script, line_of(TRAINS, "# the culprit")), first
        assert first["exception"] == "ValueError" and first["step"] >= 0 and not first["restart"]
        until(lambda: cause(run)["advice_confidence"] >= 0.95, lambda: f"twice at one place: {cause(run)}")
        assert "an earlier attempt ended with the same failure at step" in cause(run)["advice"]
        until(lambda: "do not restart" in run.output, "who watches the run is told")
        assert "First cause: rank 2 on" in why(run) and "hunter2" not in run.output.replace(
            "password=hunter2", ""
        )
        assert "hunter2" not in str(run.journal("CauseFound"))
        (run.folder / "raise-2").unlink()


def test_where_the_policy_is_to_act_a_job_that_would_fail_again_is_stopped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_RESTART_POLICY", "act")
    with running("--nproc-per-node", "4", "--max-restarts", "100", script=TRAINS) as run:
        until(lambda: run.journal("MemberStarted"), lambda: f"it trains; {run.output}")
        (run.folder / "raise-2").touch()
        assert run.end() != 0, run.output
        assert "starting it again would fail again: an earlier attempt ended" in run.output


def test_what_dies_of_another_rank_is_the_cascade() -> None:
    with submitted(*FLAGS, script=PLAIN) as run:
        until(lambda: run.output.count("began") == 4, lambda: f"all four meet; {run.output}")
        (run.folder / "raise-2").touch()
        found = until(lambda: cause(run), lambda: f"the first cause is found; {run.output}")
        assert (found["rank"], found["cause"], found["exception"]) == (2, "exception", "KeyError"), found
        assert found["line"] == line_of(PLAIN, "# the culprit"), found
        assert found["file"] == str(run.folder / "script.py") and found["cascade"], found
        assert all("rank 2" not in each for each in found["cascade"])
        until(lambda: run.output.count("began") == 8, lambda: f"it is started again: {run.output}")
        (run.folder / "done").touch()
        assert run.end() == 0, run.output


def test_a_rank_that_ends_with_code_137_is_held_for_killed_and_not_for_more() -> None:
    with submitted(*FLAGS, script=PLAIN) as run:
        until(lambda: run.output.count("began") == 4, lambda: f"all four meet; {run.output}")
        (run.folder / "exit-2").touch()
        found = until(lambda: cause(run), lambda: f"the first cause is found; {run.output}")
        assert (found["rank"], found["cause"]) == (2, "killed") and found["restart"], found
        assert "for want of memory" in found["text"], found


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A memory cgroup of ours with this limit. Skips the test where none can be made."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    parent = Path("/sys/fs/cgroup") if unified else Path("/sys/fs/cgroup/memory")
    try:
        made = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=parent))
        (made / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield made
    finally:
        until(lambda: not (made / "cgroup.procs").read_text().split(), "its processes have ended")
        made.rmdir()


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_named_with_the_limit() -> None:
    with memory_cgroup(256 << 20) as cgroup, running(
        "--nnodes", "1", "--nproc-per-node", "4", "--max-restarts", "3",
        script=HUNGRY.replace("CGROUP", str(cgroup)),
    ) as run:  # fmt: skip
        pid = run.rank_pid(1)
        until(lambda: str(pid) in (cgroup / "cgroup.procs").read_text().split(), "it is in the cgroup")
        until(lambda: agent_has_looked(run), "its counter was read before")
        (run.folder / "eat").touch()
        found = until(lambda: cause(run), lambda: f"the first cause is found; {run.output}")
        assert (found["rank"], found["cause"]) == (1, "oom_killed"), found
        if found["words_of"] == "oom_kill.c":  # a busy agent had not read the counter since the rank moved
            assert str(pid) in found["text"], found
        else:
            assert found["words_of"] == "cgroup", found
            assert str(cgroup) in found["text"] and "0.25 GiB" in found["text"], found
        until((run.folder / "1-1.pid").exists, lambda: f"it is started again; {run.output}")
        (run.folder / "done").touch()
        assert run.end() == 0, run.output


def agent_has_looked(run: Run) -> bool:
    """Whether the agent must have read the counters since the rank moved: it does so once a second, as often
    as its beats go out."""
    beats = run.folder / "looked"
    count = int(beats.read_text()) if beats.exists() else 0
    beats.write_text(str(count + 1))
    return count > 3 / 0.02 and os.path.exists(run.folder / "1-0.pid")
