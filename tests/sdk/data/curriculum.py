"""Train on a data set that a step makes harder, and that is tracked. `WORKERS`: of the loader. Rank 1 dies
once, in step 7."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset

from holdfast import Session

OUT = Path(os.environ["OUT"])


class Harder(Dataset[torch.Tensor]):
    """Rows that grow with the difficulty."""

    difficulty = 0.0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), index / 64 + self.difficulty)

    def state_dict(self) -> dict[str, float]:
        return {"difficulty": self.difficulty}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.difficulty = state["difficulty"]


torch.manual_seed(0)
session = Session()
model, data = torch.nn.Linear(2, 1), Harder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer, data=data)


@session.elastic
def train() -> list[list[float]]:
    ddp = session.ddp(model)
    loader = session.loader(data, 8, num_workers=int(os.environ["WORKERS"]))
    for step, rows in zip(session.steps(10), loader, strict=False):
        if step == 4:
            data.difficulty = 1.0
        loss = ddp(rows).square().mean()
        if step == 7 and session.rank == 1 and os.environ.get("KILL") and not (OUT / "killed").exists():
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    found: list[list[float]] = model.weight.tolist()
    return found


result = train()
(OUT / f"result.{session.rank}.json").write_text(json.dumps({"rank": session.rank, "weight": result}))
sys.exit(0)
