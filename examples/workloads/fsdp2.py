"""Parameters and optimizer state sharded over all ranks (FSDP2), or over replicated pairs (`--hsdp`).

Loses up to --snapshot-every steps on a kill, because no other rank holds the dead rank's shard; nothing with
--hsdp, while the other replica lives.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/fsdp2.py
    torchrun --nproc-per-node 4 examples/workloads/fsdp2.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from holdfast import Session

args = arguments(hsdp={"action": "store_true"})


def build(ranks: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    names = ("replicate", "shard") if args.hsdp else ("shard",)
    mesh = init_device_mesh("cpu", (2, ranks // 2) if args.hsdp else (ranks,), mesh_dim_names=names)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        model, optimizer = build(session.world_size)
        session.track(model=model, optimizer=optimizer)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
        finish(args, session.rank, model=model, optimizer=optimizer)

    train()


def reference() -> None:
    rank = begin()
    model, optimizer = build(torch.distributed.get_world_size())
    for step in range(args.steps):
        rows = share(step)
        cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
