"""The training script of `benchmarks.compiling`: `plain`, `bare` or `wrapped` says what is compiled.

Logs each step with how many graphs this process has compiled. `entry` counts the generations that it
entered."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters

from benchmarks.log import EventLog
from holdfast import Session

FORM, STEPS, WIDTH, BATCH, LAYERS = sys.argv[1], int(sys.argv[2]), 256, 64, 4
PAUSE_S = 0.02
log = EventLog(Path(os.environ["LOGS"]), rank=-1, entry=0)
session = Session()
torch.set_num_threads(1)
torch.manual_seed(42)
layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()) for _ in range(LAYERS)]
model = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(WIDTH, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
session.track(model=model, optimizer=optimizer)
bare: Any = torch.compile(model, dynamic=False) if FORM == "bare" else model
log("ready")


def graphs() -> int:
    """How many graphs this process has made."""
    return int(counters["stats"]["unique_graphs"])


@session.elastic
def train() -> None:
    """Train until killed."""
    log.always["entry"] += 1
    log.always |= {"rank": dist.get_rank(), "world": dist.get_world_size()}
    log("entered")
    ddp: Any = session.ddp(bare)
    if FORM == "wrapped":
        ddp = torch.compile(ddp, dynamic=False)
    log("wrapped")
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in session.steps(STEPS):
        optimizer.zero_grad()
        loss = ddp(torch.randn(BATCH, WIDTH, generator=generator)).pow(2).mean()
        loss.backward()
        optimizer.step()
        time.sleep(PAUSE_S)
        log("step", step=step, graphs=graphs())


train()
