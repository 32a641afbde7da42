"""The training script as users of Holdfast write it. `LOGS` comes from the environment.

`entry` counts how often this process entered train(): it grows with every generation."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.log import EventLog
from benchmarks.workers import model as workload
from holdfast import Session

STEPS = 1_000_000
log = EventLog(Path(os.environ["LOGS"]), rank=-1, entry=0)
session = Session()
model, optimizer = workload.build()
session.track(model=model, optimizer=optimizer)
log("ready")


@session.elastic
def train() -> None:
    """Train until killed."""
    log.always["entry"] += 1
    log.always |= {"rank": dist.get_rank(), "world": dist.get_world_size()}
    log("entered")
    ddp = session.ddp(model)
    log("wrapped")
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in session.steps(STEPS):
        workload.step(ddp, optimizer, generator)
        log("step", step=step)


train()
