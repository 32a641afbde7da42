"""Train in every way that `session.watch` has to leave alone, with WATCH=on or off. Writes digests and norms.

`SPOIL`: "skip", "rollback", "report" or "stop": one module of rank 1 gives NaN in step 7, and again where
that step is computed again (with "skip" in the two after it too)."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast import Session
from tests.sdk.telemetry.watched_kinds import BAD, EVERY, KINDS, STEPS

OUT, WATCH, SPOIL = Path(os.environ["OUT"]), os.environ.get("WATCH") == "on", os.environ.get("SPOIL", "")
session = Session()


class Net(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.bytes = torch.nn.Embedding(16, 8, sparse=kind == "sparse")
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 16)
        self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
        self.left = torch.nn.Linear(8, 8) if kind == "unused" else None
        if kind == "tied":
            self.last.weight = self.bytes.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.frozen(self.first(self.bytes(x)).relu()))
        return found


def norm(model: torch.nn.Module) -> float:
    """The norm of the gradient, by other means than the SDK's."""
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            whole: Any = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
            whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
            total += float(whole.double().square().sum())
    return math.sqrt(total)


def digest(model: torch.nn.Module) -> str:
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update((value.to_local() if hasattr(value, "to_local") else value).detach().numpy().tobytes())
    return found.hexdigest()


def made(kind: str) -> tuple[torch.nn.Module, Any]:
    """The model, and what is called."""
    torch.manual_seed(1)
    model = Net(kind)
    if kind != "fsdp":
        return model, session.ddp(model, find_unused_parameters=kind == "unused")
    mesh = init_device_mesh("cpu", (session.world_size,))
    fully_shard(model.first, mesh=mesh)
    return model, fully_shard(model, mesh=mesh)


def stepped(kind: str, called: Any, optimizer: Any, scaler: Any) -> float:
    """One step. Returns the norm of its gradient, before it is clipped."""
    halves = 2 if kind == "accumulated" else 1
    for half in range(halves):
        with called.no_sync() if half < halves - 1 and dist.is_initialized() else nullcontext():
            batch = session.sample_indices(256, 8, seed=3, micro=(half, halves)) % 16
            loss = called(batch).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
            if SPOIL != "rollback":  # else the loss alone would be reason enough
                session.report(loss=loss)
    if scaler:
        scaler.unscale_(optimizer)
    found = norm(called)
    if kind == "clipped":
        torch.nn.utils.clip_grad_norm_(called.parameters(), 0.001)
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
    return found


def wait_for_reports() -> None:
    deadline = time.monotonic() + 20
    while session.runtime.gradients._unread and time.monotonic() < deadline:
        time.sleep(0.02)


@session.elastic
def train() -> None:
    made_all = {kind: made(kind) for kind in KINDS}
    optimizers = {kind: torch.optim.SGD(model.parameters(), lr=0.1) for kind, (model, _) in made_all.items()}
    tracked: dict[str, Any] = {kind: model for kind, (model, _) in made_all.items()}
    tracked |= {f"{kind}_steps": each for kind, each in optimizers.items()}
    session.track(**tracked)
    told, ended = dict[str, Any](), 0
    for kind, (model, called) in made_all.items():
        if WATCH:
            session.watch(model, every=EVERY)
        ended, norms = ended + STEPS, dict[int, float]()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if kind == "scaled" else None
        for step in session.steps(ended):
            norms[step] = stepped(kind, called, optimizers[kind], scaler)
        wait_for_reports()
        told[kind] = {"digest": digest(model), "norms": norms}
    (OUT / f"told.{session.rank}.json").write_text(json.dumps(told))


@session.elastic
def train_badly() -> None:
    model = Net("plain")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.track(model=model, optimizer=optimizer)
    called = session.ddp(model)
    session.watch(model, every=1, on_nan=SPOIL)
    last = BAD + 2 if SPOIL == "skip" else BAD

    def spoil(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor | None:
        return output * math.nan if session.rank == 1 and BAD <= session.step <= last else None

    model.first.register_forward_hook(spoil)
    for _ in session.steps(BAD + 6):
        stepped("plain", called, optimizer, None)
        wait_for_reports()
    finite = all(bool(torch.isfinite(value).all()) for value in model.parameters())
    (OUT / f"told.{session.rank}.json").write_text(json.dumps({"finite": finite, "digest": digest(model)}))


if SPOIL:
    torch.manual_seed(1)
    train_badly()
else:
    train()
session.close()
