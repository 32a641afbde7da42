"""A job of two to three nodes on real processes: a node dies, the job goes on with two, and grows back; a
node is drained while all train. Every sample of every step is consumed once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import freeze_and_kill
from tests.e2e.cli_running import Run, running, until
from tests.e2e.test_cli_run import holdfast
from tests.sdk.node import samples

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINING = """
import pathlib, sys, time, torch
from holdfast import Session
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters())
session.track(model=model, optimizer=optimizer)
data = torch.ones(100, 8)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(100_000):
        chosen = session.sample_indices(100, 10)
        optimizer.zero_grad()
        ddp(data[chosen]).square().mean().backward()
        optimizer.step()
        (folder / f"world-{session.world_size}-{session.generation}").touch()
        if session.rank == 0 and (folder / "done").exists():
            (folder / "last").touch()
        time.sleep(0.02)
        if stopped(step):
            break

def stopped(step):
    flag = torch.tensor([float((folder / "last").exists())])
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(flag, 0)
    return bool(flag)

train()
"""
QUICK = ("--node-timeout-s", "4", "--stop-timeout-s", "3", "--lease-ttl-s", "2", "--broken-grace-s", "1",
         "--process-timeout-s", "0.9", "--beat-interval-s", "0.2", "--shrink-after-s", "1",
         "--grow-after-s", "1", "--resize-every-s", "1", "--join-grace-s", "20")  # fmt: skip


def world(run: Run, size: int, after: int = 0) -> int:
    """The newest generation of so many ranks that has completed a step, once it is newer than `after`."""

    def found() -> int:
        numbers = [int(path.name.split("-")[2]) for path in run.folder.glob(f"world-{size}-*")]
        return max([number for number in numbers if number > after], default=0)

    return int(until(found, lambda: f"a step of {size} ranks after generation {after}; {run.output[-6000:]}"))


def formed(run: Run) -> dict[int, list[dict[str, Any]]]:
    """The seats of every generation that etcd took."""
    stores = [body["generation"] for body in run.journal("StoreJob") if body.get("generation")]
    return {each["number"]: each["seats"] for each in stores if each["store"]}


def strategies(run: Run) -> list[str]:
    """What was decided so far, of every failure and planned change."""
    return [body["plan"]["strategy"] for body in run.journal("Judged")]


def ended_well(run: Run) -> None:
    (run.folder / "done").touch()
    assert run.end() == 0, run.output[-6000:]
    steps = samples(run.folder / "ledger")
    assert list(steps) == list(range(len(steps))), "no step is left out"
    for step, indices in steps.items():
        position = step * 10 % 100
        assert len(indices) == len(set(indices)) == 10, f"step {step}: {indices}"
        if position == 90:
            epoch = [index for back in range(10) for index in steps[step - back]]
            assert sorted(epoch) == list(range(100)), f"the epoch that ends with step {step}"


@contextmanager
def unsupervised(run: Run) -> Iterator[None]:
    """Nobody starts a node again that has died meanwhile: its machine is away."""
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(run.process.pid, signal.SIGCONT)


def test_a_lost_node_shrinks_the_job_its_return_grows_it_and_a_node_is_drained_at_a_step_boundary() -> None:
    flags = ("--nnodes", "2:3", "--nproc-per-node", "1", *QUICK)
    with running(*flags, script=TRAINING, storage=True) as run:
        grown = lost_and_back(run)
        told = len(run.journal("IncidentChanged"))
        drained(run, grown)
        ended_well(run)
        incidents = [b["incident"] for b in run.journal("IncidentChanged")[told:]]
        planned = [each for each in incidents if each["verdict"]["cause"] == "resized"]
        assert {each["plan"]["strategy"] for each in planned} >= {"shrink", "grow"}
        assert not [each for each in incidents if each["lost_steps"]], "zero steps lost"


def lost_and_back(run: Run) -> int:
    """Lose the node n2 and have it back; the generation that has it again."""
    first = world(run, 3)
    lost = run.pid_of("n2")
    with unsupervised(run):
        freeze_and_kill(lost)
        until(lambda: "shrink" in strategies(run), lambda: f"a shrink; {run.output[-6000:]}")
        second = world(run, 2, first)
    third = world(run, 3, second)
    seats = formed(run)
    assert [seat["node"] for seat in seats[second]] == ["n0", "n1"]
    assert [seat["member"] for seat in seats[third]][:2] == [seat["member"] for seat in seats[second]]
    assert strategies(run)[-1] == "grow", strategies(run)
    return third


def drained(run: Run, first: int) -> None:
    """Drain the node n1, let it back, and have n2 go away in order."""
    address = str(run.layout.read_card()["coordinator"])
    wrong = holdfast("drain", "nowhere", "--coordinator", address)
    assert wrong.returncode == 1 and "known are n0, n1, n2" in wrong.stderr
    done = holdfast("drain", "n1", "--wait", "--deadline-s", "60", "--coordinator", address)
    assert done.returncode == 0, done.stderr + done.stdout + run.output[-3000:]
    second = world(run, 2, first)
    refused = holdfast("drain", "n0", "--coordinator", address)
    assert refused.returncode == 1 and "--force" in refused.stderr, refused.stderr
    shown = json.loads(holdfast("get", "nodes", "-o", "json", "--coordinator", address).stdout)
    assert {row["node"]: row["standing"] for row in shown}["n1"] == "drained"
    assert holdfast("uncordon", "n1", "--coordinator", address).returncode == 0
    third = world(run, 3, second)
    os.kill(run.pid_of("n2"), signal.SIGTERM)  # the machine goes away; the supervisor brings it back
    fourth = world(run, 2, third)
    seats = formed(run)
    assert [seat["node"] for seat in seats[second]] == ["n0", "n2"]
    assert "n2" not in [seat["node"] for seat in seats[fourth]]
