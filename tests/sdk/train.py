"""The training that the tests disturb: BatchNorm, dropout, AdamW, a scheduler; it can kill itself anywhere.

`KILL` is JSON: [{"rank", "step", "phase", "signal"}]; each happens once in a job (a file marks it)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session
from holdfast.errors import RestoreError

OUT = Path(os.environ["OUT"])
STEPS = int(os.environ.get("STEPS", "12"))
KILLS = json.loads(os.environ.get("KILL", "[]"))
N = 300


def maybe_die(phase: str, rank: int, step: int) -> None:
    for index, kill in enumerate(KILLS):
        if (kill["phase"], kill["rank"], kill["step"]) != (phase, rank, step):
            continue
        try:
            os.close(os.open(OUT / f"killed.{index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), getattr(signal, kill.get("signal", "SIGKILL")))


class Deadly(torch.nn.Module):
    """Passes its input on; dies in forward or in backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maybe_die("forward", session.rank, session.step)
        if x.requires_grad:
            x.register_hook(lambda _: maybe_die("backward", session.rank, session.step))  # type: ignore[no-untyped-call]
        return x


class Own:
    """An object of the user's own with state, which dies while a snapshot asks for it."""

    def __init__(self) -> None:
        self.seen = 0

    def state_dict(self) -> dict[str, object]:
        if session.runtime.state.page is not None and session.runtime.state.page.phase == 5:
            maybe_die("snapshot", session.rank, session.step)
        return {"seen": self.seen, "history": [self.seen], "tag": ("a", None, 1.5)}

    def load_state_dict(self, state: dict[str, object]) -> None:
        if os.environ.get("REFUSE"):
            raise RestoreError("not today")
        self.seen = int(str(state["seen"]))


torch.manual_seed(1234 + int(os.environ.get("SKEW", "0")))
session = Session()
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64),
    torch.nn.BatchNorm1d(64),
    torch.nn.GELU(),
    Deadly(),
    torch.nn.Dropout(0.2),
    torch.nn.Linear(64, 64),
    torch.nn.BatchNorm1d(64),
    torch.nn.Linear(64, 8),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.7)
own = Own()
session.track(model=model, optimizer=optimizer, scheduler=scheduler, own=own)
optimizer.register_step_pre_hook(lambda *_: maybe_die("optimizer", session.rank, session.step))
generator = torch.Generator().manual_seed(7)
data = torch.randn(N, 16, generator=generator)
target = torch.randn(N, 8, generator=generator)


def finish_with_collective(step: int, loss: torch.Tensor) -> None:
    maybe_die("tail", session.rank, step)
    if dist.is_initialized():
        dist.all_reduce(loss.detach().clone())


@session.elastic
def train() -> tuple[str, str]:
    wrapped = (
        DistributedDataParallel(model)
        if os.environ.get("PLAIN") and dist.is_initialized()
        else session.ddp(model)
    )
    for step in session.steps(STEPS, tail="skippable"):
        maybe_die("start", session.rank, step)
        indices = session.sample_indices(N, 48, seed=3)
        optimizer.zero_grad()
        loss = (wrapped(data[indices]) - target[indices]).pow(2).mean()
        loss.backward()
        optimizer.step()
        if os.environ.get("LATE"):  # the scheduler moves after the tail's collective
            finish_with_collective(step, loss)
        own.seen += len(indices)
        scheduler.step()
        if not os.environ.get("LATE"):
            finish_with_collective(step, loss)
        session.report(loss=loss)
        if os.environ.get("RAISE") == str(step) and session.rank == 1:
            raise ValueError("the script's own mistake")
    while os.environ.get("WAIT") and session.rank == 0 and not (OUT / "killed.0").exists():
        time.sleep(0.005)  # keeps the job from its end until the kill has happened
    maybe_die("after", session.rank, session.step)
    return digest(session.runtime.state.tracked.flatten().tensors), digest(tuple(model.parameters()))


def digest(tensors: tuple[torch.Tensor, ...]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    found.update(json.dumps([own.seen, scheduler.get_last_lr()]).encode())
    return found.hexdigest()


result = train()
line = {
    "rank": session.rank,
    "digest": result[0],
    "params": result[1],
    "pid": os.getpid(),
    "env_rank": os.environ.get("RANK"),
}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
print(line, flush=True)
if os.environ.get("CLOSE"):
    session.close()
sys.exit(0)
