"""Train with a function that does something before its steps: `KIND` says what.

same: what comes to the same each time (hooks, a method in the place of a module's, random numbers, what an
    epoch begins with).
other: what comes out differently (copies of weights, a rate, a number of samples that is divided), and in
    each of two loops over steps a copy of the weights that it begins with.

`KILL` is JSON: [{"rank", "step", "place"}]; each happens once in a job, before the forward pass
("start"), before the optimizer ("body") or after it ("tail")."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Callable

OUT, KIND = Path(os.environ["OUT"]), os.environ["KIND"]
KILLS = json.loads(os.environ.get("KILL", "[]"))
SEED = int(os.environ["SEED"]) if os.environ.get("SEED") else None
STEPS = 12

torch.manual_seed(0)
random.seed(0)
session = Session(seed=SEED)
data = torch.randn(64, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
session.track(model=model, optimizer=optimizer)
config = SimpleNamespace(batch=32, opened=0.0)


def maybe_die(step: int, place: str) -> None:
    for index, kill in enumerate(KILLS):
        here = (kill["rank"], kill["step"], kill["place"]) == (session.rank, step, place)
        if here and not (OUT / f"killed.{index}").exists():
            (OUT / f"killed.{index}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def halved(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0.5


def louder(_module: torch.nn.Module, _given: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 1.5


def shrunk(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad.mul_(0.9)


def shifted(inner: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: inner(x) + 0.25


class Before:
    """What the function makes before its steps."""

    def __init__(self) -> None:
        self.noise, self.order = torch.zeros(STEPS, 8), list(range(STEPS))
        self.reference: Any = None
        self.rate, self.scale = 0.1, torch.ones(8)


def same(before: Before) -> None:
    for parameter in model.parameters():
        parameter.register_hook(halved)  # type: ignore[no-untyped-call]
    model[0].register_forward_hook(louder)
    optimizer.register_step_pre_hook(shrunk)
    model.forward = shifted(model.forward)  # type: ignore[method-assign]
    before.noise = torch.randn(STEPS, 8)
    random.shuffle(before.order)


def other(before: Before) -> None:
    before.reference = copy.deepcopy(model).requires_grad_(False)
    before.rate = optimizer.param_groups[0]["lr"]
    config.batch //= session.world_size
    config.opened = time.monotonic()  # a clock: that says nothing


@session.elastic
def train() -> str:
    before = Before()
    begun = time.monotonic()
    first = session.step
    same(before) if KIND == "same" else other(before)
    wrapped = session.ddp(model)
    for epoch in (1, 2):
        if KIND == "same" and session.step >= epoch * STEPS // 2:  # it leaves out an epoch that is over
            continue
        before.scale = torch.full((8,), 1 / epoch)
        start = [each.detach().clone() for each in model.parameters()] if KIND == "other" else []
        one_epoch(wrapped, before, start, epoch * STEPS // 2)
    assert begun > 0 and first < STEPS
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(content).hexdigest()


def one_epoch(wrapped: torch.nn.Module, before: Before, start: list[torch.Tensor], end: int) -> None:
    for step in session.steps(end):
        maybe_die(step, "start")
        places = session.sample_indices(64, 16)
        found = wrapped(before.scale * data[places] + before.noise[before.order[step]] + 0.1 * torch.randn(8))
        loss = found.square().mean() + 0.01 * config.batch * found.mean()
        for each, then in zip(model.parameters(), start, strict=False):
            loss = loss + 0.01 * (each - then).square().sum()
        if before.reference is not None:
            loss = loss + (found - before.reference(data[places])).square().mean()
        loss.backward()
        maybe_die(step, "body")
        optimizer.param_groups[0]["lr"] = before.rate * (1 - step / (2 * STEPS))
        optimizer.step()
        optimizer.zero_grad()
        maybe_die(step, "tail")
        dist.all_reduce(torch.ones(1))


digest = train()
line = {"rank": session.rank, "digest": digest}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
