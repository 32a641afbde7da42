"""A training whose state is sharded: FSDP2, HSDP or tensor parallel, tracked in the elastic function.

`KIND`: fsdp, hsdp, tp; evaluated: fsdp in bfloat16, whose parameters stay gathered after the forward pass of
an evaluation that ends each step. `KILL` as in train.py."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from holdfast import Session
from holdfast.state.tracked import walk

OUT = Path(os.environ["OUT"])
KIND = os.environ.get("KIND", "fsdp")
STEPS = int(os.environ.get("STEPS", "12"))
KILLS = json.loads(os.environ.get("KILL", "[]"))
WHOLE = int(os.environ.get("WHOLE", "-1"))  # the step before which the whole state is told
N = 200
session = Session()
data = torch.randn(N, 6, generator=torch.Generator().manual_seed(7))


def maybe_die(phase: str) -> None:
    for index, kill in enumerate(KILLS):
        if (kill["phase"], kill["rank"], kill["step"]) != (phase, session.rank, session.step):
            continue
        try:
            os.close(os.open(OUT / f"killed.{index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        if phase != "build":
            all_are_here()
        os.kill(os.getpid(), signal.SIGKILL)


def all_are_here() -> None:
    """Wait until every rank has begun this step: each has ended the one before it then, and is clean."""
    deadline = time.monotonic() + 20
    others = [OUT / f"began.{rank}.{session.step}" for rank in range(session.world_size)]
    while not all(path.exists() for path in others) and time.monotonic() < deadline:
        time.sleep(0.005)


def build() -> torch.nn.Module:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.GELU(), torch.nn.Linear(10, 3))
    world = session.world_size
    if KIND == "tp":
        mesh = init_device_mesh("cpu", (world,))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)
    if KIND == "hsdp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
    options: dict[str, Any] = {"mesh": mesh}
    if KIND == "evaluated":
        options |= {"reshard_after_forward": False, "mp_policy": MixedPrecisionPolicy(torch.bfloat16)}
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def whole(thing: torch.nn.Module | torch.optim.Optimizer) -> str:
    """A digest of the whole tensors, whatever the layout."""
    names: list[str] = []
    tensors: list[torch.Tensor] = []
    walk(thing.state_dict(), "", names, tensors)
    return digest(tuple(t.full_tensor() if isinstance(t, DTensor) else t for t in tensors))


@session.elastic
def train() -> tuple[str, list[str]]:
    model = build()
    maybe_die("build")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.7)
    session.track(model=model, optimizer=optimizer, scheduler=scheduler)
    wholes: list[str] = []
    for step in session.steps(STEPS):
        if step == WHOLE:
            wholes = [whole(model), whole(optimizer), str(scheduler.state_dict())]
        (OUT / f"began.{session.rank}.{step}").touch()
        maybe_die("start")
        indices = session.sample_indices(N, 24, seed=3)
        if KIND == "tp":  # all ranks work on the same samples
            indices = torch.arange(session.step * 7, session.step * 7 + 24) % N
        optimizer.zero_grad()
        loss = model(data[indices]).pow(2).mean()
        maybe_die("forward")
        loss.backward()
        maybe_die("optimizer")
        optimizer.step()
        scheduler.step()
        if KIND == "evaluated":
            with torch.no_grad():
                model(data[:8])
    return digest(session.runtime.state.tracked.flatten().tensors), wholes


def digest(tensors: tuple[torch.Tensor, ...]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


result = train()
line = {
    "rank": session.rank,
    "digest": result[0],
    "whole": result[1],
    "shard": session.runtime.state.shard_id,
}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
session.close()
sys.exit(0)
