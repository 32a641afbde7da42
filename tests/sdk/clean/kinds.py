"""Train in ways in which state changes otherwise than by one optimizer, once a step; `KIND` selects one.

`KILL` is JSON: [{"rank", "step", "phase"}]; each happens once in a job (a file marks it)."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from holdfast import Session

OUT = Path(os.environ["OUT"])
KIND = os.environ["KIND"]
STEPS = int(os.environ.get("STEPS", "14"))
KILLS = json.loads(os.environ.get("KILL", "[]"))
N = 300


def maybe_die(phase: str, step: int) -> None:
    for index, kill in enumerate(KILLS):
        if (kill["phase"], kill["rank"], kill["step"]) != (phase, session.rank, step):
            continue
        try:
            os.close(os.open(OUT / f"killed.{index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))


class MoCo(torch.nn.Module):
    """An encoder, and a second one that follows it slowly and is updated in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = net(), net()
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)
        self.register_buffer("queue", torch.zeros(40, 8))

    queue: torch.Tensor

    def follow(self) -> None:
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.data = slow.data * 0.9 + fast.data * 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.query(x)
        if KIND == "moco":
            self.follow()
        with torch.no_grad():
            found = self.key(x)
            self.queue[:] = torch.cat([self.queue[8:], found[:8]])
        loss: torch.Tensor = (query - found).pow(2).mean() + (query @ self.queue.T).pow(2).mean()
        return loss


class Newest:
    """The results of the newest three steps, by step."""

    def __init__(self) -> None:
        self.kept = {step: torch.zeros(8) for step in range(3)}

    def add(self, step: int, value: torch.Tensor) -> None:
        del self.kept[min(self.kept)]
        self.kept[step + 3] = value.detach().clone()

    def state_dict(self) -> dict[str, Any]:
        return {"kept": dict(self.kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = {step: value.clone() for step, value in state["kept"].items()}


torch.manual_seed(1)
session = Session()
model = MoCo() if KIND in ("moco", "moco-tail") else net()
teacher = net().requires_grad_(False)
teacher.load_state_dict(teacher.state_dict() if isinstance(model, MoCo) else model.state_dict())
if KIND.startswith("target"):
    teacher = torch.nn.Sequential(teacher)
critic = net()
groups = [list(model.parameters())]
if KIND == "groups":  # two weights of one shape, the second of which changes its group
    model = torch.nn.Sequential(*(torch.nn.Linear(width, 8, bias=False) for width in (16, 8, 8)))
    groups = [list(model[:2].parameters()), list(model[2:].parameters())]
optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=1e-2)
second = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.7)
session.track(model=model, optimizer=optimizer, scheduler=scheduler, teacher=teacher)
if KIND in ("gan", "critic"):
    session.track(critic=critic, second=second)
newest = Newest()
if KIND == "lastk":
    session.track(newest=newest)
optimizer.register_step_pre_hook(lambda *_: maybe_die("optimizer", session.step))
generator = torch.Generator().manual_seed(7)
data = torch.randn(N, 16, generator=generator)
target = torch.randn(N, 8, generator=generator)
called: list[int] = []


def after(step: int) -> None:
    maybe_die("after", step)
    if dist.is_initialized():
        dist.all_reduce(torch.ones(1))
    called.append(step)


session.after_step(after)


def collective(phase: str, step: int) -> None:
    maybe_die(phase, step)
    if dist.is_initialized():
        dist.all_reduce(torch.ones(4))


def average(weight: float, *, unseen: bool = False) -> None:
    """Update the teacher's weights towards those of the model."""
    for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
        if unseen:
            slow.data = slow.data * weight + fast.data * (1 - weight)
        else:
            with torch.no_grad():
                slow.mul_(weight).add_(fast, alpha=1 - weight)


def replace_teacher() -> None:
    """Replace the teacher by another module, as is done with a target network."""
    assert isinstance(teacher, torch.nn.Sequential)
    teacher[0] = copy.deepcopy(model).requires_grad_(False)


def regroup() -> None:
    """Add a weight to the first parameter group, between those that are in it."""
    here, there = (group["params"] for group in optimizer.param_groups)
    here.insert(1, there.pop())


def loss_of(wrapped: torch.nn.Module, places: torch.Tensor) -> torch.Tensor:
    if isinstance(model, MoCo):
        found: torch.Tensor = wrapped(data[places])
        return found
    wanted = teacher(data[places]).detach() if KIND.startswith(("dino", "target")) else target[places]
    found = (wrapped(data[places]) - wanted).pow(2).mean()
    return found


def by_hand(wrapped: torch.nn.Module, places: torch.Tensor, step: int) -> None:
    """Change weights through `.data`, without an optimizer."""
    loss_of(wrapped, places).backward()  # type: ignore[no-untyped-call]
    collective("backward", step)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.data -= 0.05 * parameter.grad
        parameter.grad = None
    collective("tail", step)


def one_step(wrapped: torch.nn.Module, adversary: torch.nn.Module, step: int) -> None:
    places = session.sample_indices(N, 24, seed=3)
    collective("forward", step)
    if KIND == "by-hand":
        by_hand(wrapped, places, step)
        return
    if KIND == "target" and step % 3 == 0:
        replace_teacher()
    if KIND == "groups" and step == 5:
        regroup()
    if KIND == "noise":  # weights of an optimizer that change before its step
        for parameter in model.parameters():
            parameter.data *= 0.99
        collective("noise", step)
    if KIND == "accumulate" and step % 4 == 0:
        optimizer.zero_grad()
    elif KIND not in ("accumulate", "zero-last"):
        optimizer.zero_grad()
    loss_of(wrapped, places).backward()  # type: ignore[no-untyped-call]
    collective("backward", step)
    if KIND in ("gan", "critic"):
        if KIND == "gan" or step % 3 == 2:
            second.zero_grad()
            (adversary(data[places]) - target[places]).abs().mean().backward()
            second.step()
        collective("between", step)
    if KIND != "accumulate" or step % 4 == 3:
        optimizer.step()
        scheduler.step()
    collective("tail", step)
    if KIND in ("ema", "dino"):
        average(0.9, unseen=KIND == "dino")
    if KIND == "lastk":
        newest.add(step, next(iter(model.parameters()))[0, :8])
    if KIND == "rare" and step % 5 == 4:
        average(0.5, unseen=True)
    if KIND == "target-tail" and step % 3 == 0:
        replace_teacher()
    if KIND == "moco-tail" and isinstance(model, MoCo):
        model.follow()
    collective("end", step)
    if KIND == "zero-last":
        optimizer.zero_grad()


@session.elastic
def train() -> str:
    wrapped, adversary = session.ddp(model), session.ddp(critic)
    tail = "skippable" if os.environ.get("TAIL") else "required"
    for step in session.steps(STEPS, tail=tail):  # type: ignore[arg-type]
        one_step(wrapped, adversary, step)
    return digest()


def digest() -> str:
    found = hashlib.sha256()
    for tensor in session.runtime.state.tracked.flatten().tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    found.update(json.dumps(scheduler.get_last_lr()).encode())
    return found.hexdigest()


result = train()
line = {"rank": session.rank, "digest": result, "called": called}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
