"""Train, and swallow the exceptions that collectives raise. `HOW`: sync, async or hooks (DDP's).

`KILL` is JSON: {"rank", "step"}; that rank dies in that step, between what it gives to the others."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(os.environ["OUT"])
HOW = os.environ["HOW"]
KILL = json.loads(os.environ.get("KILL", "{}"))
N, STEPS = 240, 12
torch.manual_seed(3)
session = Session()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data, target = torch.randn(N, 8), torch.randn(N, 2)


def maybe_die(step: int) -> None:
    (OUT / f"in.{step}.{session.rank}").touch()
    if (KILL.get("rank"), KILL.get("step")) == (session.rank, step):
        try:
            os.close(os.open(OUT / "chosen", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        (OUT / "at").touch()
        others = [OUT / f"in.{step}.{rank}" for rank in range(session.world_size) if rank != session.rank]
        while HOW == "hooks" and not all(path.exists() for path in others):
            time.sleep(0.005)  # or they might hear of the death before they begin a collective
        while KILL.get("hold") and not (OUT / "go").exists():
            time.sleep(0.005)
        (OUT / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


swallowed: list[int] = []
escaped: list[int] = []


@contextmanager
def swallowing(step: int) -> Iterator[None]:
    """Swallow what a collective raises. The exception with which the session ends a wait is counted and
    raised again."""
    try:
        yield
    except RuntimeError:
        swallowed.append(step)
    except BaseException:
        escaped.append(step)
        raise


def average(step: int) -> None:
    """Average the gradients by hand, and swallow what the collectives raise."""
    works = []
    for index, parameter in enumerate(model.parameters()):
        if index == 1:
            maybe_die(step)
        assert parameter.grad is not None
        with swallowing(step):
            work = dist.all_reduce(parameter.grad, async_op=HOW != "sync")
            works += [work] if work else []
    for work in works:
        with swallowing(step):
            work.wait()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.div_(session.world_size)


@session.elastic
def train() -> None:
    wrapped = session.ddp(model) if HOW == "hooks" else model
    for step in session.steps(STEPS):
        indices = session.sample_indices(N, 24, seed=1)
        optimizer.zero_grad()
        loss = (wrapped(data[indices]) - target[indices]).pow(2).mean()
        if HOW == "hooks":
            maybe_die(step)
            before = len(swallowed)
            with swallowing(step):
                loss.backward()
            if os.environ.get("SKIP") and len(swallowed) > before:
                continue
        else:
            loss.backward()
            average(step)
        optimizer.step()
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    line = {"rank": session.rank, "digest": found.hexdigest(), "swallowed": len(swallowed)}
    line["escaped"] = len(escaped)
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


train()
session.close()
sys.exit(0)
