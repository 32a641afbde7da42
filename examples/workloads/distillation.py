"""Knowledge distillation: a small student learns from a frozen teacher.

Loses nothing on a kill: what follows the optimizer only reports, which tail="skippable" declares, so it may
be left out. The teacher never changes; it is tracked all the same, which proves that all ranks have the same
one.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/distillation.py
    torchrun --nproc-per-node 4 examples/workloads/distillation.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

HEAT = 2.0
args = arguments()
teacher, student = mlp(inner=64).requires_grad_(False).eval(), mlp(inner=8)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
state = {"teacher": teacher, "student": student, "optimizer": optimizer}


def loss_of(ddp: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    said, wanted = ddp(X[rows]), softmax(teacher(X[rows]) / HEAT, dim=1)
    soft = kl_div(log_softmax(said / HEAT, dim=1), wanted, reduction="batchmean")
    return 0.5 * cross_entropy(said, Y[rows]) + 0.5 * HEAT**2 * soft


def main() -> None:
    session = Session()
    session.track(**state)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(student, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps, tail="skippable"):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss = loss_of(ddp, rows)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.report(loss=float(loss.detach()))

    train()
    finish(args, session.rank, **state)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(student, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        loss_of(ddp, share(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, **state)


if __name__ == "__main__":
    reference() if args.reference else main()
