"""A checkpoint whose state turned out to be wrong: the storage alone says so, and nothing takes it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.e2e.standing import Job, submitted

SCRIPT = """
import os, pathlib, sys, time
import torch
from holdfast import Session

folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)


def there(file):
    while not list(folder.glob(f"storage/jobs/*/{file}")):
        time.sleep(0.01)


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(32):
        time.sleep(0.02)
        if (step, session.generation) == (12, 1):
            there("manifests/8-1.json")
        if (step, session.generation) == (16, 1):
            there("manifests/16-1.json")
            session.fault("the loss is out of bounds")
        if step == 30:
            there("suspect/16-1.json")
        optimizer.zero_grad()
        wrapped(torch.ones(4, 8)).pow(2).mean().backward()
        optimizer.step()


train()
session.close()
"""
FLAGS = ("--nproc-per-node", "2", "--snapshot-every", "8", "--checkpoint-every", "8")


def listed(run: Job, *words: str) -> Any:
    """What `holdfast checkpoint` says of the storage, without asking a coordinator."""
    command = [sys.executable, "-P", "-m", "controlplane", "checkpoint", *words]
    storage = [f"file://{run.folder}/storage", "-o", "json"]
    done = subprocess.run([*command, *storage], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_a_checkpoint_that_the_step_after_it_proved_wrong_is_told_as_suspect_by_the_storage_alone() -> None:
    with submitted(*FLAGS, script=SCRIPT, storage=True) as run:
        assert run.end() == 0, run.output
        (judged,) = run.journal("Judged")
        assert judged["plan"]["strategy"] == "rollback", run.output
        rows = {row["checkpoint"]: row["suspect"] for row in listed(run, "list")["checkpoints"]}
        assert "the loss is out of bounds" in rows.pop("16-1")
        assert "8-1" in rows and not any(rows.values()), rows
        assert listed(run, "show", "--checkpoint", "16-1")["suspect"]
