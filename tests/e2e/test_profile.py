"""`holdfast profile` on real jobs: traces of whole steps, and by name each reason why there is none."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cli_running import ANSWERED_S, OBEDIENT, answer, running, until
from tests.e2e.test_pause import asked, job, pids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cli_running import Run

SCRIPT = """
import os, sys, time
import torch
from holdfast import Session

session = Session()
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(1_000_000):
        optimizer.zero_grad()
        wrapped(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.3 if os.path.exists(os.path.join(sys.argv[1], "slow")) else 0.02)
        done = torch.tensor(float(os.path.exists(os.path.join(sys.argv[1], "done"))))
        torch.distributed.all_reduce(done, op=torch.distributed.ReduceOp.MAX)  # all leave in the same step
        if done.item():
            break

train()
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """A job of two ranks that trains."""
    with running("--nnodes", "1", "--nproc-per-node", "2", script=SCRIPT) as made:
        until(lambda: trains(made), lambda: made.output[-3000:], pause_s=ANSWERED_S)
        yield made


def address(run: Run) -> str:
    return str(run.layout.read_card().get("coordinator", "127.0.0.1:1"))


def trains(run: Run) -> bool:
    done = answer("get", "jobs", "-o", "json", "--coordinator", address(run))
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return any(row["phase"] == "running" and row["step"] > 2 for row in rows)


def words(run: Run, *more: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "controlplane", "profile", run.job, *more]
    return [*command, "--coordinator", address(run), "--json"]


def profiled(run: Run, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(run, *more), capture_output=True, text=True, timeout=240, check=False)


def ranks_of(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)["ranks"]
    return found


def test_both_ranks_are_profiled_and_train_on(run: Run) -> None:
    living = pids(run)
    done = profiled(run, "--ranks", "0,1", "--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr + run.output[-3000:]
    rows = ranks_of(done.stdout)
    assert [(row["rank"], row["steps"], row["reason"]) for row in rows] == [(0, 3, ""), (1, 3, "")]
    for row in rows:
        path = Path(row["path"])
        assert path.stat().st_size == row["bytes"] > 0
        assert (path.parent / f"{row['member']}.log").exists(), "the trace is beside the rank's log"
        with gzip.open(path) as file:
            names = [str(each.get("name", "")) for each in json.load(file)["traceEvents"]]
        first = row["first_step"]
        spans = {name for name in names if name.startswith("holdfast step")}
        assert spans == {f"holdfast step {step}" for step in range(first, first + 3)}
        assert {"aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0"} <= set(names)
        assert "aten::addmm" in {each["name"] for each in row["operators"]} or len(row["operators"]) >= 10
        assert 0 < sum(each["share"] for each in row["operators"]) <= 1.0001
    step = job(run)["step"]
    until(lambda: job(run)["step"] > step, lambda: run.output[-3000:], pause_s=ANSWERED_S)
    assert pids(run) == living, "no process was started again"
    assert "are to be profiled for 3 steps" in asked(run, "events")
    table = asked(run, "profile", run.job, "--steps", "1")
    assert "SHARE" in table and "OPERATOR" in table and "rank 0 on" in table


def test_what_is_refused_is_named(run: Run) -> None:
    assert "there is no rank 7: it has the ranks 0 to 1" in asked(
        run, "profile", run.job, "--ranks", "0,7", code=1
    )
    assert "there is no job 'nobody'" in asked(run, "profile", "nobody", code=1)
    for flags in (("--ranks", "x"), ("--ranks", "0-99"), ("--steps", "0"), ("--steps", "51")):
        assert flags[0] in asked(run, "profile", run.job, *flags, code=2)
    asked(run, "pause", run.job, "--wait")
    assert "it is paused" in asked(run, "profile", run.job, code=1)
    asked(run, "resume", run.job, "--wait")
    until(lambda: trains(run), lambda: run.output[-3000:], pause_s=ANSWERED_S)


def test_a_second_profile_is_refused_and_a_killed_rank_ends_the_first(run: Run) -> None:
    (run.folder / "slow").touch()
    asked_first = subprocess.Popen(
        words(run, "--ranks", "0,1", "--steps", "50"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(each["steps"] == 50 for each in run.journal("ProfileAsked")), "it is asked")
    second = profiled(run, "--ranks", "1", "--steps", "1")
    assert second.returncode == 1 and "being profiled" in ranks_of(second.stdout)[0]["reason"], second.stderr
    os.kill(pids(run)[1], signal.SIGKILL)
    output, errors = asked_first.communicate(timeout=240)
    assert asked_first.returncode == 1, output + errors
    reasons = {row["rank"]: row["reason"] for row in ranks_of(output)}
    assert "its process has ended" in reasons[1] or "was lost" in reasons[1], reasons
    assert "generation" in reasons[0], reasons
    (run.folder / "slow").unlink()
    until(lambda: trains(run), lambda: run.output[-3000:], pause_s=ANSWERED_S)
    again = profiled(run, "--ranks", "0,1", "--steps", "2")
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_leader_that_dies_tells_the_person_to_ask_again(run: Run) -> None:
    (run.folder / "slow").touch()
    pending = subprocess.Popen(
        words(run, "--ranks", "0", "--steps", "49"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: any(each["steps"] == 49 for each in run.journal("ProfileAsked")), "it is asked")
    os.kill(run.pid_of("coordinator"), signal.SIGKILL)
    _, errors = pending.communicate(timeout=240)
    assert pending.returncode == 3 and "ask again" in errors, errors
    (run.folder / "slow").unlink()
    until(lambda: trains(run), lambda: run.output[-3000:], pause_s=ANSWERED_S)
    (run.folder / "done").touch()
    assert run.end() == 0, run.output[-3000:]


def test_a_plain_script_is_refused_by_name() -> None:
    with running("--nnodes", "1", "--nproc-per-node", "1", script=OBEDIENT) as plain:
        until(lambda: list(plain.folder.glob("*.pid")), lambda: plain.output[-3000:])
        until(
            lambda: (
                '"running"' in answer("get", "jobs", "-o", "json", "--coordinator", address(plain)).stdout
            ),
            "it runs",
            pause_s=ANSWERED_S,
        )
        assert "without Holdfast's SDK" in asked(plain, "profile", plain.job, code=1)
