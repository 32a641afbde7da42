"""A training script whose rank 1 hangs once, when the driver asks for it by a file `hang` beside the logs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.log import EventLog
from benchmarks.workers import model as workload
from holdfast import Session

logs = Path(os.environ["LOGS"])
log = EventLog(logs, rank=-1, entry=0)
session = Session()
model, optimizer = workload.build()
session.track(model=model, optimizer=optimizer)


def told_to_hang() -> bool:
    """Whether this process must hang now: it is rank 1, and the file is there and not taken."""
    if dist.get_rank() != 1:
        return False
    try:
        (logs / "hang").rename(logs / "hung")
    except FileNotFoundError:
        return False
    return True


@session.elastic
def train() -> None:
    """Train until killed, or until it is this process's turn to hang."""
    log.always["entry"] += 1
    log.always |= {"rank": dist.get_rank(), "world": dist.get_world_size()}
    ddp = session.ddp(model)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in session.steps(1_000_000):
        if told_to_hang():
            log("hangs", step=step)
            time.sleep(3600)
        workload.step(ddp, optimizer, generator)
        log("step", step=step)


train()
