"""A callback after a step draws the same random numbers when it runs again, and leaves them as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.e2e.standing import submitted

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 8
SCRIPT = """
import os, pathlib, signal, sys
import torch
from holdfast import Session

folder, where, seed = pathlib.Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
session = Session(seed=seed)
model = torch.nn.Linear(4, 1)
torch.nn.init.ones_(model.weight)
torch.nn.init.ones_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
session.track(model=model, optimizer=optimizer)
torch.manual_seed(3)

def draw(kind, step):
    with (folder / f"{kind}.{session.rank}.{step}").open("a") as file:
        file.write(f"{float(torch.rand(1)).hex()}\\n")

def fall(here, step):
    if here == where and step == 5 and session.rank == 1 and not (folder / "fell").exists():
        (folder / "fell").touch()
        os.kill(os.getpid(), signal.SIGKILL)

def after(step):
    draw("after", step)
    fall("after", step)

session.after_step(after)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(8):
        draw("body", step)
        ddp(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        fall("tail", step)
        torch.distributed.all_reduce(torch.ones(1))

train()
"""
FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "2")


@pytest.mark.parametrize("where", ["after", "tail"])
def test_a_survivor_draws_what_it_would_have_drawn(where: str, tmp_path: Path) -> None:
    with submitted(*FLAGS, script=SCRIPT, arguments=(str(tmp_path), where, "None")) as job:
        assert job.end() == 0, job.output
        torch.manual_seed(3)
        for step in range(STEPS):
            for kind in ("body", "after"):
                wanted = float(torch.rand(1)).hex()
                drawn = (tmp_path / f"{kind}.0.{step}").read_text().split()
                assert drawn[0] == wanted, (kind, step)
                assert (where == "tail" and kind == "after") or set(drawn) == {wanted}, (kind, step)


def test_with_a_seed_a_callback_draws_the_same_each_time(tmp_path: Path) -> None:
    with submitted(*FLAGS, script=SCRIPT, arguments=(str(tmp_path), "after", "0")) as job:
        assert job.end() == 0, job.output
        for rank in range(2):
            drawn = [(tmp_path / f"after.{rank}.{step}").read_text().split() for step in range(STEPS)]
            assert len(drawn[5]) > 1
            assert all(len(set(each)) == 1 for each in drawn)
