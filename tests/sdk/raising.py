"""Train a few steps, then raise an exception whose message reads like that of a broken connection."""

from __future__ import annotations

import builtins
import os

import torch

from holdfast import Session

session = Session()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)


@session.elastic
def train() -> None:
    for step in session.steps(6):
        session.ddp(model)(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            raise getattr(builtins, os.environ["KIND"])("request timed out: connection aborted")


train()
