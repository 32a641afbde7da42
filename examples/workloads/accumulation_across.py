"""Data parallel; gradients are accumulated over four steps, and every fourth moves the optimizer.

Loses up to three steps: training goes back to the last step after which no gradient was carried over. If no
survivor holds that state, it goes back to the newest snapshot that was taken at such a step. The samples
since then are taken again.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/accumulation_across.py
    torchrun --nproc-per-node 4 examples/workloads/accumulation_across.py --reference
"""

from __future__ import annotations

import contextlib

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

EVERY = 4
args = arguments()
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def backward(ddp: nn.Module, rows: torch.Tensor, *, last: bool) -> None:
    with contextlib.nullcontext() if last else ddp.no_sync():
        (cross_entropy(ddp(X[rows]), Y[rows]) / EVERY).backward()


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            last = step % EVERY == EVERY - 1
            backward(ddp, rows, last=last)
            if last:
                optimizer.step()
                optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        last = step % EVERY == EVERY - 1
        backward(ddp, share(step), last=last)
        if last:
            optimizer.step()
            optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
