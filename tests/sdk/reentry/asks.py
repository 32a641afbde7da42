"""Train and ask for checkpoints; `MODE` selects when, and what goes wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from holdfast import Session, SessionError

OUT = Path(os.environ["OUT"])
MODE = os.environ.get("MODE", "")


class Own:
    """An object that raises in one step when it is asked for its state."""

    def state_dict(self) -> dict[str, Any]:
        if MODE == "raise" and session.step == 3:
            raise ValueError("not at this step")
        return {"step": session.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


torch.manual_seed(0)
session = Session(seed=None if MODE == "unseeded" else 0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer, own=Own())
told: list[Any] = []


@session.elastic
def train() -> int:
    handle, wrapped = None, session.ddp(model)
    for step in session.steps(8):
        with (OUT / "noise").open("a") as drawn:
            drawn.write(f"{step} {float(torch.rand(()))}\n")
        if handle is not None and step == 3:
            told.append([handle.wait(60), handle.reason, handle.checkpoint])
            handle = None
        if MODE == "unseeded" and step == 6 and session.rank == 0 and not (OUT / "died").exists():
            (OUT / "died").touch()
            os._exit(0)
        optimizer.zero_grad()
        wrapped(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        if step == 2 and session.generation <= 1:
            handle = session.checkpoint()
            try:
                handle.wait(0)
            except SessionError as error:
                told.append(str(error))
    if MODE == "after":
        handle = session.checkpoint()
        told.append([handle.wait(60), handle.reason, handle.checkpoint])
    return session.step


result = train()
line = {"rank": session.rank, "told": told, "step": result}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
session.close()
sys.exit(0)
