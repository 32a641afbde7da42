"""A function that overwrites the restored state before its first step is told so, and refused later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.standing import submitted

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "2")
SCRIPT = """
import os, pathlib, signal, sys
import torch
from holdfast import Session
torch.manual_seed(0)
session = Session()
fell = pathlib.Path(sys.argv[1], "fell")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    if sys.argv[2] == "weights":
        torch.nn.init.ones_(model.weight)
    optimizer.param_groups[0]["lr"] = 0.1
    ddp = session.ddp(model)
    for step in session.steps(8):
        if step == 4 and session.rank == 1 and not fell.exists():
            fell.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        ddp(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] *= 0.5

train()
assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**8, optimizer.param_groups[0]["lr"]
"""


def test_a_rate_that_is_set_before_the_steps_is_that_of_the_state_after_a_death(tmp_path: Path) -> None:
    with submitted(*FLAGS, script=SCRIPT, arguments=(str(tmp_path), "rate")) as job:
        assert job.end() == 0, job.output
        assert (tmp_path / "fell").exists()
        assert "before its first step" not in job.output


def test_weights_that_are_set_before_the_steps_are_told_at_once_and_refused_after_a_death(
    tmp_path: Path,
) -> None:
    with submitted(*FLAGS, script=SCRIPT, arguments=(str(tmp_path), "weights")) as job:
        assert job.end() == 1, job.output
        assert "train changes model.weight before its first step. After a failure" in job.output
        assert "train has changed model.weight before its first step" in job.output
