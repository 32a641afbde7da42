"""DINO: a teacher that follows the student, and a centre averaged over the ranks, after the optimizer.

Loses up to --snapshot-every steps on a kill: a collective comes between the optimizer and the end of the
step, so an interrupted step may leave every rank's state half changed.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/dino.py
    torchrun --nproc-per-node 4 examples/workloads/dino.py --reference
"""

from __future__ import annotations

import copy

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, arguments, average, begin, finish, mlp, noise
from material import share as plain_share
from torch import nn
from torch.nn.functional import log_softmax, softmax
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

OUT = 6
args = arguments()
student = mlp(out=OUT)
teacher = copy.deepcopy(student).requires_grad_(False)
teacher.register_buffer("centre", torch.zeros(OUT))
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)


def views(rows: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = (X[rows] + 0.1 * noise(step, SAMPLES, WIDTH, seed=view)[rows] for view in (1, 2))
    return first, second


def loss_of(ddp: nn.Module, seen: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    wanted = softmax((given - teacher.centre) / 0.1, dim=1)
    return -(wanted * log_softmax(ddp(seen) / 0.2, dim=1)).sum(dim=1).mean()


@torch.no_grad()
def follow(given: torch.Tensor) -> None:
    """Move the teacher and its centre."""
    for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
        mine.mul_(0.9).add_(theirs, alpha=0.1)
    mean = given.mean(dim=0)
    average([mean])
    teacher.centre.mul_(0.9).add_(mean, alpha=0.1)


def main() -> None:
    session = Session()
    session.track(student=student, teacher=teacher, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(student, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            seen, other = views(rows, step)
            given = teacher(other)
            loss_of(ddp, seen, given).backward()
            optimizer.step()
            optimizer.zero_grad()
            follow(given)

    train()
    finish(args, session.rank, student=student, teacher=teacher, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(student, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        seen, other = views(plain_share(step), step)
        given = teacher(other)
        loss_of(ddp, seen, given).backward()
        optimizer.step()
        optimizer.zero_grad()
        follow(given)
    finish(args, rank, student=student, teacher=teacher, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
