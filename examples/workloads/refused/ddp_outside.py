"""Refused: `session.ddp` before the elastic function, where a torchrun script calls it.

There is no process group yet, and each failure makes a new one. Call it in the function."""

from __future__ import annotations

import torch
from torch import nn

from holdfast import Session

torch.manual_seed(0)
data = torch.randn(96, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
session = Session()
session.track(model=model, optimizer=optimizer)
ddp = session.ddp(model)


@session.elastic
def train() -> None:
    for _step in session.steps(20):
        rows = session.sample_indices(len(data), 16)
        ddp(data[rows]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


train()
