"""Train models in every way that DDP knows; rank 1 is slow in one place of each. Writes the sums of each."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from holdfast import Session
from holdfast.ipc.step_times import StepSums, StepTimesPage
from tests.sdk.anatomy.kinds_list import KINDS

OUT, SLEEP_S, STEPS = Path(os.environ["OUT"]), 0.15, 3
torch.manual_seed(0)
session = Session()


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(SLEEP_S)
        return gradient


SLOW: Any = Slow.apply


class Net(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.skipped = torch.nn.Linear(8, 4) if kind == "unused" else None
        self.norm = torch.nn.BatchNorm1d(8) if kind == "buffers" else None

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        slow = session.rank == 1 and self.kind not in ("waits", "snapshot")
        if slow and self.kind != "backward":
            time.sleep(SLEEP_S)
        if self.kind.endswith("reentrant"):
            x = checkpoint(self.first, x.requires_grad_(), use_reentrant=self.kind == "reentrant")
        else:
            x = self.first(self.first(x))
        if self.norm is not None:
            x = self.norm(x)
        if slow and self.kind == "backward":
            x = SLOW(x)
        return {"logits": (self.last(x), None)}


class Heavy:
    """An object whose state takes long to copy for a snapshot."""

    def state_dict(self) -> dict[str, int]:
        page = session.runtime.state.page
        if page is not None and page.phase == 5 and session.step >= STEPS * (len(KINDS) - 1):
            time.sleep(SLEEP_S)
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


models = {kind: Net(kind) for kind in KINDS}
optimizer = torch.optim.AdamW([p for model in models.values() for p in model.parameters()], lr=1e-2)
tracked: dict[str, Any] = {**models, "optimizer": optimizer, "heavy": Heavy()}
session.track(**tracked)


def wrapped(kind: str) -> Any:
    model = models[kind]
    if kind == "own":
        return DistributedDataParallel(model)
    options = {"unused": {"find_unused_parameters": True}, "static": {"static_graph": True}}
    made: Any = session.ddp(model, **options.get(kind, {}))
    if kind == "fp16":
        made.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if kind == "power":
        made.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
        )
    return made


def sums() -> dict[str, int]:
    page = session.runtime.state.page
    found = StepTimesPage(page).read() if page is not None else None
    return asdict(found or StepSums())


@session.elastic
def train() -> None:
    told, ended = dict[str, dict[str, Any]](), 0
    for kind in KINDS:
        before, ended, ddp = sums(), ended + STEPS, wrapped(kind)
        for _ in session.steps(ended):
            for half in range(2 if kind == "no_sync" else 1):
                with ddp.no_sync() if kind == "no_sync" and half == 0 else nullcontext():
                    ddp(torch.randn(4, 8))["logits"][0].square().mean().backward()
            if kind == "waits":
                if session.rank == 1:
                    time.sleep(SLEEP_S)
                dist.all_reduce(torch.ones(4))
            optimizer.step()
            optimizer.zero_grad()
        told[kind] = {name: value - before[name] for name, value in sums().items()}
        told[kind]["digest"] = digest(models[kind])
    (OUT / f"told.{session.rank}.json").write_text(json.dumps(told))


def digest(model: torch.nn.Module) -> str:
    state = [value.detach().flatten().double() for value in model.state_dict().values()]
    return hashlib.sha256(torch.cat(state).numpy().tobytes()).hexdigest()


train()
session.close()
assert not any("_compiled_call_impl" in model.__dict__ for model in models.values())
