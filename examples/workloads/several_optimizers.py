"""Three optimizers over the parts of one model, one of which steps twice in each step.

Loses nothing if a survivor has completed the step, else up to --snapshot-every steps: between two optimizers
a rank's state is half changed.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/several_optimizers.py
    torchrun --nproc-per-node 4 examples/workloads/several_optimizers.py --reference
"""

from __future__ import annotations

import torch
from material import CLASSES, GLOBAL_BATCH, ONE_EACH, SAMPLES, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

args = arguments()
model = nn.Sequential(nn.Embedding(SAMPLES, 8), mlp(out=8), nn.Linear(8, CLASSES))
table = torch.optim.Adagrad(model[0].parameters(), lr=0.1)
body = torch.optim.AdamW(model[1].parameters(), lr=1e-2)
head = torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
state = {"model": model, "table": table, "body": body, "head": head}


def backward(ddp: nn.Module, rows: torch.Tensor) -> None:
    model.zero_grad()
    cross_entropy(ddp(rows), Y[rows]).backward()


def main() -> None:
    session = Session()
    session.track(**state)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            backward(ddp, rows)
            body.step()
            backward(ddp, rows)
            body.step()
            table.step()
            head.step()

    train()
    finish(args, session.rank, **state)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        backward(ddp, rows)
        body.step()
        backward(ddp, rows)
        body.step()
        table.step()
        head.step()
    finish(args, rank, **state)


if __name__ == "__main__":
    reference() if args.reference else main()
