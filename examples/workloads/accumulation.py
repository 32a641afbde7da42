"""Data parallel; gradients are accumulated over two micro-batches of each step.

With `--no-sync` the ranks communicate for the last micro-batch only. Loses nothing on a kill, because
gradients begin and end within a step; or one step, if only some of the survivors had completed it.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/accumulation.py --no-sync
    torchrun --nproc-per-node 4 examples/workloads/accumulation.py --no-sync --reference
"""

from __future__ import annotations

import contextlib

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

args = arguments(no_sync={"action": "store_true"})
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.8)


def backward(ddp: nn.Module, rows: torch.Tensor, *, last: bool) -> None:
    quiet = args.no_sync and not last
    with ddp.no_sync() if quiet else contextlib.nullcontext():
        (cross_entropy(ddp(X[rows]), Y[rows]) / 2).backward()


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, schedule=schedule)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            first, second = session.sample_indices(SAMPLES, GLOBAL_BATCH).chunk(2)
            backward(ddp, first, last=False)
            backward(ddp, second, last=True)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer, schedule=schedule)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        first, second = share(step).chunk(2)
        backward(ddp, first, last=False)
        backward(ddp, second, last=True)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    reference() if args.reference else main()
