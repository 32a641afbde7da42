"""Train with a declared step, and disturb one rank. `FAULT`: how; `AT`: `rank:step` of it.

`bit`: another process flips a bit, as in `flipped.py`. `place`, `process`, `clock`: the function itself adds
to a parameter from that step on, on the rank that the session names, or torch, or by the clock. `outside`:
the loop does so, in that step alone. `schedule`: beside `bit`, something else than the function changes the
learning rate. `undeclared`, `seedless`, `loader`, `carried`: beside `bit`, steps that cannot be replayed.
`never`: nothing happens."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from holdfast import Session

OUT, FAULT = Path(os.environ["OUT"]), os.environ["FAULT"]
STEPS = int(os.environ.get("STEPS", "16"))
RANK, STEP = map(int, os.environ.get("AT", "1:9").split(":"))
session = Session(seed=None if FAULT == "seedless" else 0)
torch.set_num_threads(1)
torch.manual_seed(1)
first = torch.nn.Linear(6, 10)
model = torch.nn.Sequential(first, torch.nn.Dropout(0.2), torch.nn.Linear(10, 6))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
session.track(model=model, optimizer=optimizer, schedule=schedule)
data = torch.randn(200, 6, generator=torch.Generator().manual_seed(7))
calls = [0]


def let_flip() -> None:
    rows = {
        f"parameter {name}": {"address": each.data_ptr(), "bytes": each.nbytes, "word": 4}
        for name, each in model.named_parameters()
    }
    path, flipped = OUT / f"addresses.{STEP}.json", OUT / f"flipped.{STEP}"
    path.with_suffix(".new").write_text(json.dumps({"pid": os.getpid(), "tensors": rows}))
    path.with_suffix(".new").rename(path)
    while not flipped.exists():
        time.sleep(0.002)


def disturb(rank: int) -> None:
    if rank == RANK and session.step >= STEP:
        with torch.no_grad():
            first.weight.add_(time.time_ns() % 1000 * 1e-5 if FAULT == "clock" else 1e-3)


def samples() -> torch.Tensor:
    if FAULT == "loader":
        return torch.stack([data[i] for i in next(batches)])
    return data[session.sample_indices(200, 13, seed=3)]


batches: Any = None


@session.elastic
def train() -> None:
    global batches
    wrapped = session.ddp(model)
    batches = iter(session.sampler(200, 13, seed=3)) if FAULT == "loader" else None

    def step() -> None:
        calls[0] += 1
        if FAULT != "carried" or session.step % 2 == 0:
            optimizer.zero_grad()
        loss = wrapped(samples()).pow(2).mean()
        loss.backward()
        if FAULT != "carried" or session.step % 2 == 1:
            optimizer.step()
        if FAULT != "schedule":
            schedule.step()
        if FAULT in ("place", "clock"):
            disturb(session.rank)
        elif FAULT == "process":
            disturb(dist.get_rank())
        session.report(loss=loss)
        session.check(loss)

    called = step if FAULT == "undeclared" else session.step_function(step)
    for number in session.steps(STEPS):
        here = session.generation == 1 and (session.rank, number) == (RANK, STEP)
        if here and FAULT not in ("place", "process", "clock", "outside", "never"):
            let_flip()
        called()
        if FAULT == "schedule":
            schedule.step()
        if here and FAULT == "outside":
            disturb(RANK)
    found = hashlib.sha256()
    for tensor in session.runtime.state.tracked.flatten().tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    line = {"digest": found.hexdigest(), "rank": session.rank, "calls": calls[0]}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


train()
session.close()
