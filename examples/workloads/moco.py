"""MoCo: a momentum encoder that changes in the forward pass, and a queue of keys gathered from all ranks.

Loses nothing on a kill, or one step, if only some of the survivors had completed it. Encoder and queue change
before the step's collectives: Holdfast copies them at its start, and puts them back when the step is
interrupted.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/moco.py
    torchrun --nproc-per-node 4 examples/workloads/moco.py --reference
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, arguments, begin, finish, mlp, noise, share
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

QUEUE, OUT, MOMENTUM = 32, 6, 0.9


class MoCo(nn.Module):
    """Two encoders of the same data; the second follows the first."""

    def __init__(self) -> None:
        super().__init__()
        self.query = mlp(out=OUT)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", normalize(torch.randn(QUEUE, OUT), dim=1))
        self.register_buffer("end", torch.zeros(1, dtype=torch.long))

    def forward(self, seen: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        queries = normalize(self.query(seen), dim=1)
        keys = self.keys(other)
        same = (queries * keys).sum(dim=1, keepdim=True)
        others = queries @ self.queue.clone().T
        self.remember(keys)
        return torch.cat([same, others], dim=1) / 0.2

    @torch.no_grad()
    def keys(self, rows: torch.Tensor) -> torch.Tensor:
        for mine, theirs in zip(self.key.parameters(), self.query.parameters(), strict=True):
            mine.mul_(MOMENTUM).add_(theirs, alpha=1 - MOMENTUM)
        return normalize(self.key(rows), dim=1)

    @torch.no_grad()
    def remember(self, keys: torch.Tensor) -> None:
        gathered = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, keys)
        places = (self.end + torch.arange(GLOBAL_BATCH)) % QUEUE
        self.queue[places] = torch.cat(gathered)
        self.end.add_(GLOBAL_BATCH).remainder_(QUEUE)


args = arguments()
model = MoCo()
optimizer = torch.optim.SGD(model.query.parameters(), lr=0.1, momentum=0.9)


def loss_of(ddp: nn.Module, rows: torch.Tensor, step: int) -> torch.Tensor:
    seen, other = (X[rows] + 0.1 * noise(step, SAMPLES, WIDTH, seed=view)[rows] for view in (1, 2))
    return cross_entropy(ddp(seen, other), torch.zeros(len(rows), dtype=torch.long))


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss_of(ddp, rows, step).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        loss_of(ddp, share(step), step).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
