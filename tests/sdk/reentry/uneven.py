"""Train with a global batch that no number of ranks here divides, in double precision, so that the result can
be compared with that of one process that sees whole batches. Ranks wait for the file `go`: three ranks at the
end of step 20, and of four ranks only rank 1, in step 8 before its backward."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch

from holdfast import Session

STEPS, N, BATCH = 40, 97, 10
OUT = Path(os.environ.get("OUT", "."))


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.randn(N, 8).double(), torch.randn(N, 2).double()


def wait() -> None:
    while not (OUT / "go").exists():
        time.sleep(0.01)


def main() -> None:
    session = Session()
    model, optimizer, data, target = build()
    session.track(model=model, optimizer=optimizer)
    seen: list[tuple[int, int, float]] = []

    @session.elastic
    def train() -> list[float]:
        wrapped = session.ddp(model)
        for step in session.steps(STEPS):
            chosen = session.sample_indices(N, BATCH, seed=3)
            optimizer.zero_grad()
            if (step, session.world_size, session.rank) == (8, 4, 1):
                wait()
            (wrapped(data[chosen]) - target[chosen]).square().mean().backward()
            optimizer.step()
            seen.append((step, session.world_size, session.loss_weight))
            if (step, session.world_size) == (20, 3):
                wait()
        return [float(p.detach().sum()) for p in model.parameters()]

    sums = train()
    line = {"rank": session.rank, "sums": sums, "seen": seen, "env": os.environ["WORLD_SIZE"]}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


if __name__ == "__main__":
    main()
