"""Refused: experts in plain tensors, a different one on each rank, tracked as if all were the same.

Write `session.track(per_rank=True, ...)`, or `shard="expert-3"` where several ranks hold it: see
../moe.py."""

from __future__ import annotations

import torch
from torch import nn

from holdfast import Session

session = Session()
data = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))


@session.elastic
def train() -> None:
    torch.manual_seed(session.rank)
    expert = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(expert.parameters(), lr=0.1)
    session.track(expert=expert, optimizer=optimizer)
    for _step in session.steps(20):
        rows = session.sample_indices(len(data), 16)
        expert(data[rows]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


train()
