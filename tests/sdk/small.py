"""Train the smallest model; `MODE` selects what goes wrong."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

from holdfast import Session, SessionError

OUT = Path(os.environ["OUT"])
MODE = os.environ.get("MODE", "")
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
session.track(model=model, optimizer=optimizer)
passes = 0
noise: list[float] = []
inputs: list[list[list[float]]] = []
seen: list[int] = []


class Squares(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        gate = session.runtime.state.agent
        held = gate is not None and gate._socket is not None
        return torch.tensor([index * index, os.getpid(), int(held)])


@session.elastic
def train() -> int:
    global passes
    passes += 1
    wrapped = session.ddp(model)
    for step in session.steps(6):
        if MODE == "raise" and step == 3 and session.rank == 0:
            raise ValueError("the script's own mistake")
        if MODE == "rest" and (step, session.rank, session.generation) == (3, 1, 1):
            time.sleep(1000)
        if MODE == "timeout" and step == 3 and session.rank == 0:
            raise RuntimeError("the database says: timed out")
        if MODE == "workers" and step == 1:
            loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2)
            rows = torch.cat(list(loader)).tolist()
            assert [row[0] for row in rows] == [index * index for index in range(8)]
            assert all(row[1] != os.getpid() and not row[2] for row in rows), "a worker kept the gate"
        if MODE == "late" and step == 1:
            try:
                session.track(other=torch.nn.Linear(1, 1))
            except SessionError as error:
                print("refused:", error, flush=True)
        noise.append(float(torch.rand(())))
        x = torch.randn(3, 4)
        inputs.append(x.tolist())
        optimizer.zero_grad()
        wrapped(x).pow(2).mean().backward()
        optimizer.step()
        if MODE == "break" and step == 3:
            break
        session.report(loss=0.5, step=torch.tensor(step), name="no number")
    if MODE == "break":
        for step in session.steps(6):
            seen.append(step)
            optimizer.step()
            break
    return session.step


result = train()
weights = [round(float(value), 6) for value in model.weight.detach().flatten()]
line = {"result": result, "rank": session.rank, "world_size": session.world_size, "passes": passes}
found = {"weights": weights, "noise": noise, "seen": seen, "inputs": inputs}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line | found))
session.close()
sys.exit(0)
