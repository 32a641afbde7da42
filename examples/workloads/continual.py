"""Continual learning: three tasks in turn, each with its own version of the data.

Elastic weight consolidation (EWC) preserves what earlier tasks need. Loses nothing if a survivor has
completed the step, else up to --snapshot-every steps of its task. A rank that joins later does not run a
finished task again: it gets what that task returned.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/continual.py
    torchrun --nproc-per-node 4 examples/workloads/continual.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

TASKS = 3
args = arguments()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Consolidation(nn.Module):
    """The weights after earlier tasks, and how much each of them mattered. Buffers, because they are
    state."""

    def __init__(self) -> None:
        super().__init__()
        for index, parameter in enumerate(model.parameters()):
            for name in ("mattered", "matters", "was"):
                self.register_buffer(f"{name}_{index}", torch.zeros_like(parameter))
        self.register_buffer("data_version", torch.tensor(0))

    def of(self, name: str) -> list[torch.Tensor]:
        return [self.get_buffer(f"{name}_{index}") for index in range(len(list(model.parameters())))]

    def penalty(self) -> torch.Tensor:
        parts = zip(self.of("mattered"), self.of("was"), model.parameters(), strict=True)
        return sum((much * (now - was).square()).sum() for much, was, now in parts)

    @torch.no_grad()
    def begin(self, task: int) -> None:
        """Begin a task: what the previous one learned counts from now on.

        Called in the task's first step, so that it is part of that step, however often the step is run."""
        self.data_version.fill_(task + 1)
        for much, new, was, now in zip(
            *map(self.of, ("mattered", "matters", "was")), model.parameters(), strict=True
        ):
            much.add_(new)
            new.zero_()
            was.copy_(now)

    @torch.no_grad()
    def learn(self) -> None:
        """Measure how much each weight matters: the mean square of its gradient."""
        for much, parameter in zip(self.of("matters"), model.parameters(), strict=True):
            much.mul_(0.9).add_(parameter.grad.square(), alpha=0.1)


ewc = Consolidation()


def loss_of(ddp: nn.Module, rows: torch.Tensor, task: int) -> torch.Tensor:
    wanted = (Y[rows] + task) % 4  # this task's version of the data
    return cross_entropy(ddp(X[rows]), wanted) + 0.5 * ewc.penalty()


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, ewc=ewc)

    @session.elastic
    def train(task: int) -> float:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH, seed=task)
            if step == 0:
                ewc.begin(task)
            loss_of(ddp, rows, task).backward()
            ewc.learn()
            optimizer.step()
            optimizer.zero_grad()
        return float(ewc.penalty())

    penalties = [train(task) for task in range(TASKS)]
    finish(args, session.rank, model=model, optimizer=optimizer, ewc=ewc, penalties=penalties)


def reference() -> None:
    rank, penalties = begin(), []
    for task in range(TASKS):
        ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
        for step in range(args.steps):
            rows = share(step, seed=task)
            if step == 0:
                ewc.begin(task)
            loss_of(ddp, rows, task).backward()
            ewc.learn()
            optimizer.step()
            optimizer.zero_grad()
        penalties.append(float(ewc.penalty()))
    finish(args, rank, model=model, optimizer=optimizer, ewc=ewc, penalties=penalties)


if __name__ == "__main__":
    reference() if args.reference else main()
