"""Train with a loop over steps in every epoch, and change tracked state between the loops.

`KILL` is JSON: [{"rank", "step", "phase"}]; each happens once. `CHANGES`: what is changed between the
loops."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast import Session

OUT = Path(os.environ["OUT"])
CHANGES = os.environ["CHANGES"]
KILLS = json.loads(os.environ.get("KILL", "[]"))
N, EPOCHS, STEPS = 96, 3, 4


def maybe_die(phase: str, step: int) -> None:
    for index, kill in enumerate(KILLS):
        if (kill["phase"], kill["rank"], kill["step"]) == (phase, session.rank, step):
            try:
                os.close(os.open(OUT / f"killed.{index}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


class Best:
    """The lowest loss of an evaluation, and how many there were."""

    loss, seen = float("inf"), 0

    def state_dict(self) -> dict[str, float]:
        return {"loss": self.loss, "seen": self.seen}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.loss, self.seen = state["loss"], int(state["seen"])


torch.manual_seed(3)
session = Session()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
best = Best()
scaler = torch.amp.GradScaler("cpu", enabled=False)  # as scripts have it that train without float16
session.track(model=model, optimizer=optimizer, schedule=schedule, best=best, scaler=scaler)
data, target = torch.randn(N, 8), torch.randn(N, 2)


@torch.no_grad()
def change() -> None:
    """What a script does at the end of an epoch. Done twice, each change has another effect than once."""
    normalises = model[1].training
    if CHANGES != "buffers":
        model.eval()
    loss = (model(data) - target).square().mean()
    model.train()
    if CHANGES == "schedule":
        schedule.step()
        best.loss, best.seen = min(best.loss, float(loss)), best.seen + 1
    elif CHANGES == "options":
        optimizer.param_groups[0]["lr"] *= 0.5
    elif CHANGES == "weights":
        model[0].get_parameter("weight").mul_(0.5)
    elif CHANGES == "modes":
        model[1].train(not normalises)
    maybe_die("between", session.step)
    dist.all_reduce(loss)


@session.elastic
def train() -> str:
    ddp = session.ddp(model)
    for epoch in range(EPOCHS):
        for step in session.steps((epoch + 1) * STEPS):
            rows = session.sample_indices(N, 24)
            loss = (ddp(data[rows]) - target[rows]).square().mean()
            maybe_die("forward", step)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        change()
    return digest()


def digest() -> str:
    found = hashlib.sha256()
    for tensor in session.runtime.state.tracked.flatten().tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    found.update(json.dumps([best.loss, best.seen, schedule.state_dict(), schedule.get_last_lr()]).encode())
    return found.hexdigest()


result = train()
line = {"rank": session.rank, "digest": result}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
sys.exit(0)
