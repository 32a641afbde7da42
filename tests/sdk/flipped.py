"""Train while another process flips bits in the memory of one rank. `KIND`: which model and state.

At the beginning of each step of AT (`rank:step`, with commas), that rank writes the addresses of its tensors
to `addresses.<step>.json`, and waits until `flipped.<step>` is there. GRADIENTS: do that after the gradients
are reduced instead, with theirs. The script itself damages nothing."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session
from holdfast.state.shards import local

OUT = Path(os.environ["OUT"])
KIND = os.environ["KIND"]
STEPS = int(os.environ.get("STEPS", "12"))
GRADIENTS = bool(os.environ.get("GRADIENTS"))
ACCUMULATED = {"accumulated": 4, "accumulated_early": 3}.get(KIND, 0)
"""The step of four in which the optimizer steps."""
AT = [tuple(map(int, each.split(":"))) for each in os.environ.get("AT", "").split(",") if each]
BY_SEQUENCE = {
    "first": ColwiseParallel(output_layouts=Shard(0)),
    "norm": SequenceParallel(sequence_dim=0, use_local_output=True),
    "last": RowwiseParallel(input_layouts=Shard(0)),
}
"""A tensor-parallel plan. The norm's gradients are addends, which the optimizer's step adds up."""
session = Session(seed=0)
data = torch.randn(200, 6, generator=torch.Generator().manual_seed(7))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(6, 10), torch.nn.Linear(10, 6)
        self.norm = torch.nn.BatchNorm1d(10) if KIND.startswith("norm") else torch.nn.LayerNorm(10)
        self.drop = torch.nn.Dropout(0.3 if KIND == "dropout" else 0.0)
        self.register_buffer("scale", torch.ones(10))

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.drop(torch.nn.functional.gelu(self.norm(self.first(x)) * self.scale)))


def tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Every tensor of the state, by what it is and its name."""
    if GRADIENTS:
        return {f"gradient {n}": local(p.grad) for n, p in model.named_parameters() if p.grad is not None}
    found = {f"parameter {name}": local(value) for name, value in model.named_parameters()}
    found |= {f"buffer {name}": value for name, value in model.named_buffers()}
    names = {id(value): name for name, value in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        found |= {f"optimizer {names[id(parameter)]} {key}": local(value) for key, value in state.items()}
    return found


def let_flip(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if (session.rank, session.step) not in AT or session.generation > 1:
        return
    rows = {
        name: {"address": each.data_ptr(), "bytes": each.nbytes, "word": each.element_size()}
        for name, each in tensors(model, optimizer).items()
        if each.numel()
    }
    path, flipped = OUT / f"addresses.{session.step}.json", OUT / f"flipped.{session.step}"
    path.with_suffix(".new").write_text(json.dumps({"pid": os.getpid(), "tensors": rows}))
    path.with_suffix(".new").rename(path)
    while not flipped.exists():
        time.sleep(0.002)


def build() -> tuple[Any, torch.nn.Module, torch.optim.Optimizer]:
    """What is called in a step, the tracked module, and the optimizer."""
    module: Any = Net()
    world = session.world_size
    if KIND == "fsdp":
        fully_shard(module, mesh=init_device_mesh("cpu", (world,)))
    elif KIND == "hsdp":
        fully_shard(module, mesh=init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "shard")))
    elif KIND == "tp":
        module = parallelize_module(module, session.mesh()["tp"], BY_SEQUENCE)
    optimizer: Any = torch.optim.AdamW(module.parameters(), lr=1e-2)
    if KIND == "own":
        optimizer = Reducing(module.parameters(), lr=1e-2)
    if KIND == "still":
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    if KIND == "norm_plain":
        return DistributedDataParallel(module), module, optimizer
    if KIND in ("fsdp", "hsdp", "own", "tp"):
        return module, module, optimizer
    return session.ddp(module, broadcast_buffers=KIND != "kept"), module, optimizer


def digest() -> str:
    found = hashlib.sha256()
    for tensor in session.runtime.state.tracked.flatten().tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def batch_of(step: int, size: int) -> torch.Tensor:
    first = step * 11 + session.layout.dp_rank * 7
    return data[torch.arange(first, first + size) % 200]


def average(module: torch.nn.Module) -> None:
    """Average the gradients over the replicas of the model, as ranks of a tensor group have them."""
    group = session.mesh()["dp"].get_group()
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            own = local(parameter.grad)
            own.div_(dist.get_world_size(group))
            dist.all_reduce(own, group=group)


class Reducing(torch.optim.AdamW):
    """An optimizer that reduces the gradients itself."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
        return super().step(closure)


@session.elastic
def train() -> None:
    model, module, optimizer = build()
    session.track(model=module, optimizer=optimizer)
    for step in session.steps(STEPS):
        if not GRADIENTS:
            let_flip(module, optimizer)
        size = 8 if KIND != "unequal" else 4 + 3 * session.rank
        if ACCUMULATED and step % 4 != ACCUMULATED - 1:
            with model.no_sync():
                model(batch_of(step, size)).pow(2).mean().backward()
            continue
        batch = batch_of(step, size)
        if not ACCUMULATED:
            optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=KIND == "amp"):
            loss = model(batch).pow(2).mean()
        loss.backward()
        if KIND == "tp":
            average(module)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        if GRADIENTS:
            let_flip(module, optimizer)
        optimizer.step()
        if ACCUMULATED:
            optimizer.zero_grad()
        session.check(loss)
    line = {"digest": digest(), "rank": session.rank}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


train()
session.close()
sys.exit(0)
