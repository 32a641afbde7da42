"""Keep the wrapper of a model outside of the elastic function; rank 1 dies once in step 3. Write what is
told, and wrap the model anew then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from holdfast import Session, SessionError

OUT = Path(os.environ["OUT"])
session = Session(seed=1)
torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)
held: dict[str, torch.nn.Module] = {}


@session.elastic
def train() -> None:
    if "ddp" not in held:
        held["ddp"] = session.ddp(model)
    for step in session.steps(6):
        if step == 3 and session.rank == 1 and not (OUT / "killed").exists():
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with torch.no_grad():
            held["ddp"](torch.ones(1, 2))
        try:
            loss = held["ddp"](torch.ones(1, 2)).sum()
        except SessionError as error:
            (OUT / f"told.{session.rank}").write_text(f"step {step}: {error}")
            held["ddp"] = session.ddp(model)
            loss = held["ddp"](torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


train()
with torch.no_grad():
    held["ddp"](torch.ones(1, 2))  # no generation any more: an evaluation at the end
