"""Context parallel by hand: each rank holds a part of the sequence and gathers the others' keys and values.

Loses nothing on a kill, because every rank holds the whole model; or one step, if only some of the survivors
had completed it.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 --context-parallel 2 examples/workloads/context_parallel.py
    torchrun --nproc-per-node 4 examples/workloads/context_parallel.py --reference
"""  # noqa: E501

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from material import CLASSES, GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, gradients, share
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from holdfast import Session

WIDTH, LENGTH = 8, X.shape[1]
args = arguments()


class Gathered(torch.autograd.Function):
    """Puts the parts of all ranks together along the sequence; gradients go back to the rank that owns the
    part."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, whole: torch.Tensor) -> tuple[torch.Tensor, None]:
        whole = whole.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, group=ctx.group)
        return whole.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None


class Reader(nn.Module):
    """Reads a sample as a sequence of numbers; each position guesses the class."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh["cp"]
        self.into, self.places = nn.Linear(1, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.to_qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, part: torch.Tensor) -> torch.Tensor:
        """The scores for this rank's part of each sequence."""
        at = self.mesh.get_local_rank() * part.shape[1] + torch.arange(part.shape[1])
        q, k, v = self.to_qkv(self.into(part[..., None]) + self.places(at)).chunk(3, dim=-1)
        keys, values = (Gathered.apply(each, self.mesh.get_group()) for each in (k, v))
        return self.out(scaled_dot_product_attention(q, keys, values))


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Reader(mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model: nn.Module, mesh: DeviceMesh, rows: torch.Tensor) -> torch.Tensor:
    part = X[rows].chunk(mesh["cp"].size(), dim=1)[mesh["cp"].get_local_rank()]
    scores = model(part)
    return cross_entropy(scores.flatten(0, 1), Y[rows].repeat_interleave(part.shape[1]))


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        mesh = session.mesh()
        model, optimizer = build(mesh)
        session.track(model=model, optimizer=optimizer)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss_of(model, mesh, rows).backward()
            average(gradients(model))
            optimizer.step()
            optimizer.zero_grad()
        finish(args, session.rank, model=model, optimizer=optimizer)

    train()


def reference() -> None:
    rank = begin()
    mesh = init_device_mesh("cpu", (2, 1, 2, 1), mesh_dim_names=("dp", "pp", "cp", "tp"))
    model, optimizer = build(mesh)
    for step in range(args.steps):
        loss_of(model, mesh, share(step, mesh["dp"].get_local_rank(), 2)).backward()
        average(gradients(model))
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
