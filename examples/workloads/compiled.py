"""torch.compile with inductor: batch norm, dropout, and a smaller batch at the end of every epoch.

Loses nothing on a kill, or one step, if only some of the survivors had completed it; at most the steps since
the last snapshot if the other of the two ranks dies before training goes on, since then only the snapshot has
the weights. Each size of batch has a graph of its own, as in an elastic function by default. inductor needs a
C++ compiler on the machine.

    holdfast run --nnodes 2 --nproc-per-node 1 --spares 1 examples/workloads/compiled.py
    torchrun --nproc-per-node 2 examples/workloads/compiled.py --reference
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from material import CLASSES, GLOBAL_BATCH, SAMPLES, WIDTH, X, Y, arguments, begin, finish, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session
from holdfast.state.randomness import seed_step

EPOCH, TAIL = 6, 2
args = arguments()
model = nn.Sequential(
    *(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, CLASSES))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
compiled = torch.compile(model, dynamic=False)


def loss_of(ddp: nn.Module, rows: torch.Tensor, step: int) -> torch.Tensor:
    """The loss. Of the last batch of an epoch only the first samples are taken."""
    taken = rows[:TAIL] if step % EPOCH == EPOCH - 1 else rows
    return cross_entropy(ddp(X[taken]), Y[taken])


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(compiled)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss_of(ddp, rows, step).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(compiled, find_unused_parameters=True)
    for step in range(args.steps):
        seed_step(0, step, rank)  # as the session does it, for dropout
        loss_of(ddp, share(step), step).backward()
        optimizer.step()
        optimizer.zero_grad()
    for buffer in model.buffers():  # plain DDP would do it before the next step
        dist.broadcast(buffer, 0)
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
