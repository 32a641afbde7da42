"""Train in a loop that belongs to a trainer: it only calls back. `LOOP`: "calls", or "steps" to compare with.

`KILL` is JSON: {"rank", "step"}; that rank dies in that step, before its optimizer."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(os.environ["OUT"])
KILL = json.loads(os.environ.get("KILL", "{}"))
N, STEPS, BATCH = 240, 12, 24
torch.manual_seed(3)
session = Session()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data, target = torch.randn(N, 8), torch.randn(N, 2)
events: list[list[object]] = []
losses: list[float] = []


def formed() -> None:
    events.append(["form", session.generation, session.rank, dist.get_world_size()])


def left() -> None:
    events.append(["leave", session.generation, dist.is_initialized()])


session.on_form(formed)
session.on_leave(left)


def maybe_die(step: int) -> None:
    if (KILL.get("rank"), KILL.get("step")) == (session.rank, step):
        try:
            os.close(os.open(OUT / "killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Trainer:
    """Owns the loop, as trainers of frameworks do."""

    def fit(self, train_step: object) -> None:
        while (step := session.begin_step(STEPS)) is not None:
            train_step(step)  # type: ignore[operator]
            session.end_step()


def taken() -> Iterator[torch.Tensor]:
    """The samples of this step and of the next ones, fetched ahead."""
    for step in range(session.step, STEPS):
        yield session.indices_at(step, N, BATCH, 1)


@session.elastic
def train() -> None:
    wrapped = session.ddp(model)
    session.restore()
    ahead = taken()

    def train_step(step: int) -> None:
        indices = session.sample_indices(N, BATCH, seed=1)
        assert indices.tolist() == next(ahead).tolist() == session.indices_at(step, N, BATCH, 1).tolist()
        optimizer.zero_grad()
        loss = (wrapped(data[indices]) - target[indices]).pow(2).mean()
        losses.append(float(loss.detach()))
        loss.backward()
        maybe_die(step)
        optimizer.step()

    if os.environ["LOOP"] == "calls":
        Trainer().fit(train_step)
    else:
        for step in session.steps(STEPS):
            train_step(step)


train()
found = hashlib.sha256()
for parameter in model.parameters():
    found.update(parameter.detach().numpy().tobytes())
line = {"rank": session.rank, "digest": found.hexdigest(), "events": events}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
session.close()
sys.exit(0)
