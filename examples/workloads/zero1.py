"""ZeRO-1: every rank holds the whole model and a part of the optimizer's state (ZeroRedundancyOptimizer).

Loses up to --snapshot-every steps on a kill: no other rank holds the dead rank's part.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/zero1.py
    torchrun --nproc-per-node 4 examples/workloads/zero1.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

args = arguments()


def build() -> tuple[nn.Module, ZeroRedundancyOptimizer]:
    torch.manual_seed(0)
    model = mlp()
    return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2)


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        model, optimizer = build()
        session.track(model=model)
        session.track(per_rank=True, optimizer=optimizer)
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            cross_entropy(ddp(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
        finish(args, session.rank, model=model, part=optimizer.optim)

    train()


def reference() -> None:
    rank = begin()
    model, optimizer = build()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        cross_entropy(ddp(X[rows]), Y[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, part=optimizer.optim)


if __name__ == "__main__":
    reference() if args.reference else main()
