"""Trains until the step that the file `end` in $OUT names; `MIB` of state move at a restore.

Each step sums over all ranks, so that no rank passes the last step without having read the file."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast import Session

OUT = Path(os.environ["OUT"])
MIB = int(os.environ.get("MIB", "8"))
FOR_EVER = 10_000_000
SHARED = 64  # rows of the weights that steps change
torch.manual_seed(5)
session = Session(backend=os.environ.get("BACKEND", "gloo"))
model = torch.nn.Linear(512, 512 * MIB, bias=False, device=session.device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
session.track(model=model, optimizer=optimizer)


def end() -> int:
    try:
        return int((OUT / "end").read_text())
    except (FileNotFoundError, ValueError):  # not there, or not written to its end
        return FOR_EVER


@session.elastic
def train() -> int:
    for step in session.steps(FOR_EVER, tail="skippable"):
        loss = model.weight[step % SHARED].sum() * (step % 7 + session.rank)
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = model.weight.grad
        assert gradient is not None
        dist.all_reduce(gradient[:SHARED])
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(1, device=session.device))
        time.sleep(0.002)
        if step + 1 >= end():
            return step + 1
    return FOR_EVER


reached = train()
digest = hashlib.sha256(model.weight.detach().cpu().numpy().tobytes()).hexdigest()
(OUT / f"result.{session.rank}.json").write_text(
    json.dumps({"rank": session.rank, "reached": reached, "digest": digest})
)
sys.exit(0)
