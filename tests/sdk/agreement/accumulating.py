"""Batch norm whose gradients are accumulated over two backward passes, the first without synchronization."""

import json
import os
from typing import Any

import torch

from holdfast import Session

session = Session()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)


@session.elastic
def train() -> None:
    ddp: Any = session.ddp(model)
    for _ in session.steps(12):
        with ddp.no_sync():
            ddp(torch.randn(8, 4)).square().mean().backward()
        ddp(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


train()
found = {name: buffer.tolist() for name, buffer in model.named_buffers()}
with open(os.path.join(os.environ["OUT"], f"result.{session.rank}.json"), "w") as out:
    json.dump({"buffers": found, "scattered": session.runtime.state.tracked.scattered}, out)
