"""Mixed precision: bf16 autocast, and a GradScaler that skips the optimizer when it finds an overflow.

Loses nothing on a kill, or one step, if only some of the survivors had completed it. The scaler is tracked,
like everything else that the next step depends on.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/amp.py
    torchrun --nproc-per-node 4 examples/workloads/amp.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

OVERFLOWS = (6, 13)
args = arguments()
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)


def loss_of(ddp: nn.Module, rows: torch.Tensor, step: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(ddp(X[rows]), Y[rows])
    return loss * float("inf") if step in OVERFLOWS else loss


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, scaler=scaler)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss = loss_of(ddp, rows, step)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer, scaler=scaler)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        loss = loss_of(ddp, share(step), step)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer, scaler=scaler)


if __name__ == "__main__":
    reference() if args.reference else main()
