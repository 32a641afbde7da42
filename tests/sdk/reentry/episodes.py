"""Train on an episode in each step, and empty the lists of it where the step ends.

`CLEARED`: begin or end. Rank 1 dies once in the middle of step 5, `PHASE` says where."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast import Session

OUT = Path(os.environ["OUT"])


class Policy(torch.nn.Module):
    """A policy that keeps the episode in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.rewards, self.turns = torch.nn.Linear(2, 1), list[float](), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turns += 1
        out: torch.Tensor = self.inner(x)
        self.rewards.append(float(out.detach().mean()))
        return out

    def clear(self) -> None:
        self.rewards.clear()
        self.turns = 0


torch.manual_seed(0)
session = Session()
policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
session.track(policy=policy, optimizer=optimizer)


def episode(step: int) -> torch.Tensor:
    loss = torch.zeros(())
    for turn in range(4):
        loss = loss + policy(torch.ones(1, 2) * turn).square().sum()
        if turn == 2 and step == 5 and session.rank == 1 and not (OUT / "killed").exists():
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if turn == 2:
            dist.barrier()
    return loss * sum(policy.rewards)


@session.elastic
def train() -> list[float]:
    for step in session.steps(8):
        if os.environ["CLEARED"] == "begin":
            policy.clear()
        episode(step).backward()  # type: ignore[no-untyped-call]
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if os.environ["CLEARED"] == "end":
            policy.clear()
    return policy.inner.weight.tolist()


result = train()
(OUT / f"result.{session.rank}.json").write_text(json.dumps({"rank": session.rank, "weight": result}))
sys.exit(0)
