"""Several tasks with a head each, one of them in a step; gradients stay as zeros (`set_to_none=False`).

So the optimizer also steps the heads that a step has not used, with their momentum and weight decay: which
parameters have a gradient counts. After each third step the average of the weights is swapped in for an
evaluation, and out again.

Loses nothing if a survivor has completed the step, else up to --snapshot-every steps: the average changes
after the optimizer.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/several_tasks.py
    torchrun --nproc-per-node 4 examples/workloads/several_tasks.py --reference
"""

from __future__ import annotations

import random

import torch
import torch.distributed as dist
from material import (
    CLASSES,
    GLOBAL_BATCH,
    ONE_EACH,
    SAMPLES,
    WIDTH,
    X,
    Y,
    arguments,
    begin,
    finish,
    mlp,
    share,
)
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from holdfast import Session

TASKS, EVERY = 4, 3
args = arguments()


class MultiTask(nn.Module):
    """A trunk, and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = mlp(out=WIDTH)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(TASKS))

    def forward(self, x: torch.Tensor, task: int) -> torch.Tensor:
        out: torch.Tensor = self.heads[task](self.trunk(x))
        return out


model = MultiTask()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def train_step(ddp: nn.Module, rows: torch.Tensor, step: int) -> None:
    task = random.Random(step).randrange(TASKS)
    optimizer.zero_grad(set_to_none=False)
    cross_entropy(ddp(X[rows], task), (Y[rows] + task) % CLASSES).backward()
    optimizer.step()
    average.update_parameters(model)


def evaluate(step: int) -> None:
    if step % EVERY != EVERY - 1:
        return
    pairs = list(zip(model.parameters(), average.module.parameters(), strict=True))
    kept = [own.data.clone() for own, _ in pairs]
    for own, mean in pairs:
        own.data.copy_(mean)
    with torch.no_grad():
        dist.all_reduce(cross_entropy(model(X, 0), Y))
    for (own, _), value in zip(pairs, kept, strict=True):
        own.data.copy_(value)


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, average=average)
    session.after_step(evaluate)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            train_step(ddp, rows, step)

    train()
    finish(args, session.rank, model=model, optimizer=optimizer, average=average)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        train_step(ddp, share(step), step)
        evaluate(step)
    finish(args, rank, model=model, optimizer=optimizer, average=average)


if __name__ == "__main__":
    reference() if args.reference else main()
