"""Checkpoints through all rooms: a sharded job, a node lost with its memory, a script that asks."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.local.processes import descendants
from tests.e2e.checkpointing import kill
from tests.e2e.cli_running import Run, running, until

if TYPE_CHECKING:
    from tests.e2e.standing import Job

SHARDED = """
import hashlib, json, os, pathlib, sys, time
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from holdfast import Session

folder, last = pathlib.Path(sys.argv[1]), LAST
torch.set_num_threads(1)
session = Session()
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))

@session.elastic
def train():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    mesh = init_device_mesh("cpu", (session.world_size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.track(model=model, optimizer=optimizer)
    for _ in session.steps(last):
        time.sleep(PAUSE)
        optimizer.zero_grad()
        indices = session.sample_indices(64, 8, seed=3)
        model(data[indices]).pow(2).mean().backward()
        optimizer.step()
        (folder / f"step.{session.rank}").write_text(str(session.step))
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.full_tensor().detach().numpy().tobytes())
    return found.hexdigest()

digest = train()
(folder / f"result.{session.rank}").write_text(json.dumps({"digest": digest, "pid": os.getpid()}))
session.close()
"""


def script(last: int, pause_s: float) -> str:
    return SHARDED.replace("LAST", str(last)).replace("PAUSE", str(pause_s))


def step_of(run: Run | Job, rank: int) -> int:
    path = run.folder / f"step.{rank}"
    return int((path.exists() and path.read_text()) or -1)


def result(run: Run | Job, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.folder / f"result.{rank}").read_text())
    return found


def lose(run: Run, node: str) -> None:
    """A node is gone with all its processes and all its memory, and comes back empty."""
    agent = run.pid_of(f"agent-{node}") or run.pid_of(node)
    assert agent, run.layout.read_card()
    os.kill(agent, signal.SIGSTOP)
    launcher = int((run.layout.run_dir / node / "launcher.pid").read_text())
    kill([launcher, *descendants(launcher)])
    shutil.rmtree(run.layout.shm(node))
    kill([agent])


@pytest.mark.parametrize("every", ["1", "5"])
def test_a_node_lost_with_its_memory_comes_back_from_its_partners(every: str) -> None:
    """Nothing is on storage: what the lost node held is in its partner's memory alone."""
    flags = ("--nnodes", "2", "--snapshot-every", every, "--checkpoint-every", "1000")
    with running(*flags, script=script(60, 0.1), storage=True) as run:
        until(lambda: min(step_of(run, 0), step_of(run, 1)) >= 17, lambda: f"step 17; {run.output}")
        lose(run, "n1")
        assert run.end(110) == 0, run.output
        told = [one["incident"] for one in run.journal("IncidentChanged")]
        (incident,) = [one for one in told if one["outcome"] == "recovered"]
        assert incident["lost_steps"] <= 10
        stored = [one["generation"] for one in run.journal("StoreJob") if one["generation"]]  # always whole
        resume = stored[-1]["resume"]
        assert resume["tier"] == "peer", resume
        assert {source["tier"] for source in resume["sources"] or [resume]} <= {"peer", "memory", "donor"}
        assert not run.journal("Load"), "the storage was not read"
        assert result(run, 0)["digest"] == result(run, 1)["digest"]


def test_a_node_lost_while_the_coordinator_is_away_comes_back_from_its_partners() -> None:
    """The leader that comes later has not heard what the lost node's agent vouched for: its partner has."""
    flags = ("--nnodes", "2", "--snapshot-every", "5", "--checkpoint-every", "1000")
    with running(*flags, script=script(120, 0.1), storage=True) as run:
        until(lambda: min(step_of(run, 0), step_of(run, 1)) >= 17, lambda: f"step 17; {run.output}")
        coordinator, seen = run.pid_of("coordinator"), step_of(run, 0)
        assert coordinator
        os.kill(coordinator, signal.SIGSTOP)
        until(lambda: min(step_of(run, 0), step_of(run, 1)) >= seen + 50, lambda: f"50 steps; {run.output}")
        lose(run, "n1")
        kill([coordinator])
        assert run.end(110) == 0, run.output
        stored = [one["generation"] for one in run.journal("StoreJob") if one["generation"]]
        resume = stored[-1]["resume"]
        assert resume["tier"] == "peer" and 5 <= resume["step"] <= seen, resume
        assert "hashes to is known from those who keep it" in resume["reason"], resume
        assert not run.journal("Load"), "the storage was not read"
        assert result(run, 0)["digest"] == result(run, 1)["digest"]


def test_a_node_lost_while_copies_are_slow_comes_back_from_its_partners() -> None:
    """A copy takes longer than the steps between two snapshots. No rank overwrites its own snapshot of a step
    before the next one is with the partners of all: else a lost node would leave no step whole."""
    large = (
        script(130, 0.05).replace("Linear(8, 16)", "Linear(8, 40_000)").replace("Linear(16", "Linear(40_000")
    )
    flags = ("--nnodes", "2", "--snapshot-every", "2", "--checkpoint-every", "1000")
    slow = (*flags, "--peer-bytes-per-s", str(4 << 20))
    with running(*slow, script=large, storage=True) as run:
        until(lambda: min(step_of(run, 0), step_of(run, 1)) >= 60, lambda: f"step 60; {run.output}")
        lose(run, "n1")
        assert run.end() == 0, run.output
        stored = [one["generation"] for one in run.journal("StoreJob") if one["generation"]]
        resume = stored[-1]["resume"]
        assert resume["tier"] == "peer", resume
        assert not run.journal("Load"), "the storage was not read"
        assert result(run, 0)["digest"] == result(run, 1)["digest"]
