"""What a script does wrong with its session: refused at once, once, with the cure; never tried again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.cli_running import running
from tests.e2e.standing import submitted

HEAD = """
import sys, time, torch
import torch.distributed as dist
from holdfast import Session
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def one(ddp, optimizer):
    optimizer.zero_grad()
    ddp(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
"""
TRACK = "session.track(model=model, optimizer=optimizer)\n"
TRAIN = """
@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(5):
        one(ddp, optimizer)
"""
CASES = {
    "ddp outside": (
        HEAD
        + TRACK
        + "ddp = session.ddp(model)\n"
        + TRAIN.replace("    ddp = session.ddp(model)\n", "")
        + "train()\n",
        "ddp: call it in the function under @session.elastic",
    ),
    "steps outside": (
        HEAD + TRACK + "for step in session.steps(5):\n    one(session.ddp(model), optimizer)\n",
        "steps: call it in the function under @session.elastic",
    ),
    "steps never used": (
        HEAD + TRACK + "@session.elastic\ndef train():\n    one(session.ddp(model), optimizer)\ntrain()\n",
        "train: it has returned without using session.steps(...)",
    ),
    "train never called": (
        HEAD + TRACK + TRAIN,
        "no function under @session.elastic was called",
    ),
    "train never called, exit": (
        HEAD + TRACK + TRAIN + "sys.exit(0)\n",
        "no function under @session.elastic was called",
    ),
    "an unnamed object": (
        HEAD + "session.track(model, optimizer)\n" + TRAIN + "train()\n",
        "track(<Linear>): give it a name, as in session.track(model=...)",
    ),
    "a group before the session": (
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        + HEAD
        + TRACK
        + TRAIN
        + "train()\n",
        "remove torch.distributed.init_process_group",
    ),
    "a group before the function": (
        HEAD + TRACK + TRAIN + "dist.init_process_group('gloo')\ntrain()\n",
        "remove torch.distributed.init_process_group",
    ),
    "a group before the function, made late": (
        HEAD
        + TRACK
        + TRAIN
        + "import os\ntime.sleep(0 if os.environ['RANK'] == '-1' else 4)\n"
        + "dist.init_process_group('gloo')\ntrain()\n",
        "remove torch.distributed.init_process_group",
    ),
    "a group in the function": (
        HEAD
        + TRACK
        + TRAIN.replace("    ddp =", "    dist.init_process_group('gloo')\n    ddp =")
        + "train()\n",
        "remove torch.distributed.init_process_group",
    ),
    "another optimizer": (
        HEAD
        + TRACK
        + TRAIN.replace("        one(ddp, optimizer)\n", "        one(ddp, other)\n")
        + "other = torch.optim.Adam(model.parameters())\ntrain()\n",
        "step 0: Adam, an optimizer that is not tracked, updates parameters of the tracked 'model'",
    ),
}


FLAGS = ("--nproc-per-node", "2", "--spares", "1")
VARIANTS = ("train never called, exit", "a group before the function, made late")
ROWS = [pytest.param(case, marks=pytest.mark.exhaustive) if case in VARIANTS else case for case in CASES]


@pytest.mark.parametrize("case", ROWS)
def test_it_is_refused_once_with_the_cure(case: str) -> None:
    script, cure = CASES[case]
    with submitted(*FLAGS, script=script) as run:
        assert run.end() == 1, run.output
        is_told_once(run.told, cure, run.journal("IncidentChanged"))


def test_a_run_that_is_refused_tells_it_once_and_leaves_nothing() -> None:
    script, cure = CASES["another optimizer"]
    with running(*FLAGS, script=script) as run:
        assert run.end() == 1, run.output
        is_told_once(run.output, cure, run.journal("IncidentChanged"))
        assert run.traces() == []


def is_told_once(told: str, cure: str, changes: list[dict[str, Any]]) -> None:
    assert cure in told, told
    assert "starting it again would raise it again" in told, told
    assert told.count("Traceback (most recent call last)") == 1, told
    assert len({body["incident"]["id"] for body in changes}) <= 1, told
