"""LBFGS: forward, backward and their collectives run inside optimizer.step(), several times.

Loses up to --snapshot-every steps on a kill: a rank that is interrupted is inside the optimizer, with its
state half changed.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/lbfgs.py
    torchrun --nproc-per-node 4 examples/workloads/lbfgs.py --reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, average, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Callable

args = arguments()
model = mlp()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3, history_size=4)


def closure(ddp: nn.Module, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(ddp(X[rows]), Y[rows])
        loss.backward()
        mean = loss.detach().clone()
        average([mean])  # LBFGS decides by the loss, so it must be the same on all ranks
        return mean

    return evaluate


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            optimizer.step(closure(ddp, rows))

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        optimizer.step(closure(ddp, share(step)))
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
