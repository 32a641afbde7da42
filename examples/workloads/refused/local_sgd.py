"""Refused: local steps that are not declared.

Between two averages each rank has a model of its own, but it is tracked as if all were the same. Write
`session.track(per_rank=True, ...)`: see ../local_sgd.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from holdfast import Session

torch.manual_seed(0)
data = torch.randn(96, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = Session()
session.track(model=model, optimizer=optimizer)


@session.elastic
def train() -> None:
    for step in session.steps(20):
        rows = session.sample_indices(len(data), 16)
        model(data[rows]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 7:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data.div_(session.world_size))


train()
