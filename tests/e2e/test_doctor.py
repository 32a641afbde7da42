"""`holdfast doctor JOB` on a real job: a healthy one has no finding, a slow rank is named, and the next
leader remembers it."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import Any

from tests.e2e.cli_running import ANSWERED_S, Run, answer, running, until

FLAGS = ("--nnodes", "2", "--nproc-per-node", "2", "--diagnose-every-s", "1")
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
        if os.path.exists(os.path.join(sys.argv[1], f"slow-{session.rank}")):
            time.sleep(0.3)
        wrapped(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.03)

train()
"""


def doctor(run: Run) -> dict[str, Any]:
    """The answer to `holdfast doctor`, for programs."""
    address = run.layout.read_card().get("coordinator", "127.0.0.1:1")
    done = answer("doctor", run.job, "--coordinator", address, "--json")
    if done.returncode:
        return {"error": done.stderr}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def slow(run: Run) -> list[int]:
    """The ranks that are said to be slow now."""
    findings = doctor(run).get("findings", [])
    return [each["subject"]["rank"] for each in findings if each["kind"] == "slow_rank"]


def opened(run: Run) -> int:
    changes = run.journal("FindingChanged")
    return sum(each["outcome"] == "opened" and each["kind"] == "slow_rank" for each in changes)


def judged(run: Run) -> bool:
    return bool(doctor(run).get("anatomy", {}).get("judged"))


told = partial(until, pause_s=ANSWERED_S)


def test_a_slow_rank_is_named_and_the_next_leader_remembers_it() -> None:
    with running(*FLAGS, script=SCRIPT) as run:
        told(lambda: judged(run), lambda: f"it is judged; {run.output}")
        assert slow(run) == [], run.output
        ranks = doctor(run)["anatomy"]["ranks"]
        assert [row["rank"] for row in ranks] == [0, 1, 2, 3]
        assert {row["node"] for row in ranks[:2]} != {row["node"] for row in ranks[2:]}
        (run.folder / "slow-2").touch()
        told(lambda: slow(run) == [2], lambda: f"rank 2 is named; {doctor(run)}; {run.output}")
        until(lambda: opened(run), lambda: f"it is journaled: {run.journal('FindingChanged')}")
        assert opened(run) == 1, run.journal("FindingChanged")
        until(lambda: "slow_rank" in run.output, "people who watch the run are told")
        address = run.layout.read_card()["coordinator"]
        explained = answer("why", run.job, "--coordinator", address).stdout
        assert "has no incident" in explained and "slow_rank, rank 2" in explained and "; do: " in explained
        told_to_programs = json.loads(answer("why", run.job, "--coordinator", address, "--json").stdout)
        assert "slow_rank" in [each["kind"] for each in told_to_programs["findings"]]
        os.kill(run.pid_of("coordinator"), signal.SIGKILL)
        told(lambda: slow(run) == [2], lambda: f"the next leader remembers; {run.output}")
        told(lambda: judged(run), lambda: f"and judges; {run.output}")
        assert slow(run) == [2] and opened(run) == 1
        (run.folder / "slow-2").unlink()
        told(lambda: not slow(run), lambda: f"it is resolved; {doctor(run)}")
