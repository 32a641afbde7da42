"""A node that is really slow is found, and with `--slow-rank-policy act` its rank moves to the spare node, on
real processes. Nothing is lost, repeated or computed otherwise."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.demo.duty_cycle import DutyCycle
from tests.e2e.cli_running import running, until
from tests.e2e.standing import submitted
from tests.e2e.test_elastic import QUICK, formed
from tests.sdk.node import samples

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run
    from tests.e2e.standing import Job

TRAINING = """
import hashlib, os, pathlib, sys, torch
from holdfast import Session
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
session = Session()
model = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256),
                            torch.nn.Tanh(), torch.nn.Linear(256, 2))
optimizer = torch.optim.AdamW(model.parameters())
session.track(model=model, optimizer=optimizer)
data = torch.linspace(-1, 1, 2400 * 8).reshape(2400, 8)
limit = int((folder / "limit").read_text()) if (folder / "limit").exists() else 100_000

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(limit):
        chosen = session.sample_indices(2400, 24)
        (folder / f"rank-{session.rank}-{session.generation}").write_text(str(os.getpid()))
        optimizer.zero_grad()
        batch = data[chosen].repeat(300, 1)
        ddp(batch).square().mean().backward()
        optimizer.step()
        flag = torch.tensor([float((folder / "done").exists())])
        torch.distributed.broadcast(flag, 0)
        if flag:
            break

train()
digest = hashlib.sha256()
for each in model.parameters():
    digest.update(each.detach().numpy().tobytes())
(folder / f"weights-{session.rank}").write_text(digest.hexdigest())
"""
FLAGS = ("--nnodes", "3:4", "--replica-nodes", "3", "--nproc-per-node", "1", *QUICK)  # the fourth is spare


def pids(run: Run) -> dict[int, int]:
    """The processes of the ranks of the first generation that have completed a step."""
    found = {int(path.name.split("-")[1]): path.read_text() for path in run.folder.glob("rank-?-1")}
    return {rank: int(text) for rank, text in found.items() if text}


def trained(run: Run | Job) -> tuple[dict[int, list[int]], set[str]]:
    """Which samples each step consumed, and the digests of the weights, once all is over."""
    assert run.end() == 0, run.output[-6000:]
    weights = {path.read_text() for path in run.folder.glob("weights-*")}
    return samples(run.folder / "ledger"), weights


def undisturbed(last: int) -> tuple[dict[int, list[int]], set[str]]:
    """The same of three ranks that nothing happens to, on one node: where they are changes nothing."""
    with submitted("--nproc-per-node", "3", script=TRAINING, storage=True, files={"limit": str(last)}) as run:
        return trained(run)


def moved(run: Run) -> bool:
    """Whether ranks of another place than at first have completed a step."""
    return any(path.name.split("-")[2] != "1" for path in run.folder.glob("rank-1-*"))


@pytest.mark.slow
def test_a_slow_node_is_swapped_for_the_spare_one_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_SLOW_RANK_POLICY", "act")
    flags = (*FLAGS, "--diagnose-every-s", "1", "--swap-every-s", "3600")
    with running(*flags, script=TRAINING, storage=True) as run:
        found = until(lambda: len(pids(run)) == 3 and pids(run), lambda: run.output[-6000:])
        slow = DutyCycle(found[1], [found[0], found[2]], 4.0, 1)
        try:
            until(lambda: run.journal("Judged"), lambda: f"{run.journal('FindingChanged')}")
        finally:
            slow.end()
        until(lambda: moved(run), lambda: run.output[-6000:])
        (run.folder / "done").touch()
        steps, weights = trained(run)
        (judged,) = run.journal("Judged")
        seats = list(formed(run).values())
    assert judged["plan"]["strategy"] == "move" and "by diagnosis: slow_" in judged["plan"]["reason"]
    before, after = ([seat["node"] for seat in each] for each in (seats[0], seats[-1]))
    (spare,) = {"n0", "n1", "n2", "n3"} - set(before)
    assert after == [before[0], spare, before[2]]
    assert list(steps) == list(range(len(steps))) and all(len(set(each)) == 24 for each in steps.values())
    monkeypatch.undo()  # or the standing cluster has it, if it begins here
    assert undisturbed(len(steps)) == (steps, weights) and len(weights) == 1


def newer(run: Run, after: int) -> tuple[int, int] | None:
    """The newest generation, past `after`, in which rank 1 has completed a step, and its process there."""
    found = [(int(path.name.split("-")[2]), path.read_text()) for path in run.folder.glob("rank-1-*")]
    newest = max(((generation, int(text)) for generation, text in found if text), default=(0, 0))
    return newest if newest[0] > after else None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_whose_rank_fell_silent_twice_is_left_before_it_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two failures weigh 2.0 of the 3.0 at which a node is quarantined: a risk of 0.60, above the limit."""
    monkeypatch.setenv("HOLDFAST_NODE_RISK_POLICY", "act")
    flags = ("--nnodes", "3:4", "--replica-nodes", "3", "--nproc-per-node", "1", "--snapshot-every", "5")
    windows = ("--diagnose-every-s", "1", "--swap-every-s", "3600", "--max-restarts", "9")
    with running(*flags, *windows, script=TRAINING, storage=True) as run:
        generation = 0
        for _ in range(2):
            generation, pid = until(partial(newer, run, generation), lambda: run.output[-6000:])
            os.kill(pid, signal.SIGSTOP)
        until(
            lambda: "move" in [each["plan"]["strategy"] for each in run.journal("Judged")],
            lambda: f"{run.journal('FindingChanged')}; {run.output[-4000:]}",
        )
        moving = max(formed(run))
        until(partial(newer, run, moving), lambda: run.output[-6000:])
        (run.folder / "done").touch()
        steps, weights = trained(run)
        judged = run.journal("Judged")
        seats = list(formed(run).values())
    causes = [each["verdict"]["cause"] for each in judged]
    assert causes == ["silent", "silent", "resized"], causes  # nothing failed after the node was left
    assert re.search(
        r"by diagnosis: node_at_risk, node \S+: it may fail next \(risk 0\.60", judged[2]["plan"]["reason"]
    )
    before, after = ([seat["node"] for seat in each] for each in (seats[0], seats[-1]))
    (spare,) = {"n0", "n1", "n2", "n3"} - set(before)
    assert after == [before[0], spare, before[2]]
    monkeypatch.undo()
    assert undisturbed(len(steps))[1] == weights and len(weights) == 1
