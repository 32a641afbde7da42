"""Train a compiled model whose batches differ in size; `MODE` selects how it is compiled.

The backend stands for inductor, whose kernels for one size and for any size round differently: its graphs for
any size give other numbers than those for one size."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from holdfast import Session
from holdfast.ipc.progress_page import ACTIVITIES, ProgressPage

if TYPE_CHECKING:
    from collections.abc import Callable

OUT = Path(os.environ["OUT"])
MODE = os.environ.get("MODE", "bare")
KILL_AT = int(os.environ.get("KILL_AT", "-1"))  # rank 1 dies in this step, once
STEPS, BATCH, TAIL, EVERY = 12, 4, 2, 4
graphs: list[bool] = []  # of each graph: whether it is for any size
activities: set[str] = set()  # what the progress page showed while one was made
page = ProgressPage.open(Path(os.environ["HOLDFAST_BOARD"])) if "HOLDFAST_BOARD" in os.environ else None


def rounding(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    any_size = any(isinstance(each, torch.SymInt) for each in examples)
    graphs.append(any_size)
    if page is not None:
        activities.add(ACTIVITIES[page.activity])

    def run(*given: Any) -> Any:
        return [each * 1.5 if any_size else each for each in graph(*given)]

    return run


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(self.norm(self.first(x)).relu())
        return output


torch.manual_seed(0)
session = Session()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
session.track(model=model, optimizer=optimizer)
how: dict[str, Any] = {"backend": rounding, "dynamic": True if MODE == "dynamic" else None}
bare: Any = torch.compile(model, **how)


def size(step: int) -> int:
    """How many samples a step has: the last batch of an epoch is smaller, or each one has its own size."""
    return step + 2 if MODE == "sizes" else TAIL if step % EVERY == EVERY - 1 else BATCH


@session.elastic
def train() -> None:
    called = torch.compile(session.ddp(model), **how) if MODE == "wrapped" else session.ddp(bare)
    if MODE == "sizes":
        torch._dynamo.config.recompile_limit = STEPS // 2
    for step in session.steps(STEPS):
        if (step, session.rank, (OUT / "killed").exists()) == (KILL_AT, 1, False):
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        called(torch.randn(size(step), 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


train()
digest = hashlib.blake2b(repr([each.tolist() for each in model.state_dict().values()]).encode()).hexdigest()
found = {"rank": session.rank, "digest": digest, "graphs": graphs, "activities": sorted(activities)}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(found))
