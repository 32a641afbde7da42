"""Refused: an optimizer that is not tracked. A rank that joins would get the model without its moments.

Write `session.track(model=model, optimizer=optimizer)`."""

from __future__ import annotations

import torch
from torch import nn

from holdfast import Session

torch.manual_seed(0)
data = torch.randn(96, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
session = Session()
session.track(model=model)


@session.elastic
def train() -> None:
    ddp = session.ddp(model)
    for _step in session.steps(20):
        rows = session.sample_indices(len(data), 16)
        ddp(data[rows]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


train()
