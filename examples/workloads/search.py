"""A search over learning rates: trials one after the other, each a training of its own.

A trial ends half-way if the best earlier one was better there. Loses nothing if a survivor has completed the
step, else up to --snapshot-every steps of its trial. Finished trials are not run again: what they returned
(plain data) is kept with their final state.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/search.py
    torchrun --nproc-per-node 4 examples/workloads/search.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

RATES = (0.01, 0.001, 0.05)
args = arguments()


class Trial(nn.Module):
    """A model and its losses so far. The losses are buffers, because they are state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = mlp()
        self.register_buffer("losses", torch.full((args.steps,), float("inf")))

    @torch.no_grad()
    def look(self, step: int) -> None:
        self.losses[step] = cross_entropy(self.model(X), Y)

    def hopeless(self, step: int, others: list[list[float]]) -> bool:
        """Whether an earlier trial was better at the same step. All ranks come to the same answer."""
        half = step == args.steps // 2
        return half and bool(others) and float(self.losses[step]) > min(losses[step] for losses in others)


def main() -> None:
    session = Session()
    study: list[list[float]] = []
    trial, optimizer = Trial(), None

    @session.elastic
    def train(task: int) -> list[float]:
        ddp = session.ddp(trial.model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH, seed=task)
            cross_entropy(ddp(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
            trial.look(step)
            if trial.hopeless(step, study):
                break
        return trial.losses.tolist()

    for task, rate in enumerate(RATES):
        trial = Trial()
        optimizer = torch.optim.AdamW(trial.model.parameters(), lr=rate)
        session.track(trial=trial, optimizer=optimizer)
        study.append(train(task))
    finish(args, session.rank, trial=trial, optimizer=optimizer, study=study)


def reference() -> None:
    rank, study = begin(), []
    for task, rate in enumerate(RATES):
        trial = Trial()
        optimizer = torch.optim.AdamW(trial.model.parameters(), lr=rate)
        ddp = DistributedDataParallel(trial.model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
        for step in range(args.steps):
            rows = share(step, seed=task)
            cross_entropy(ddp(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
            trial.look(step)
            if trial.hopeless(step, study):
                break
        study.append(trial.losses.tolist())
    finish(args, rank, trial=trial, optimizer=optimizer, study=study)


if __name__ == "__main__":
    reference() if args.reference else main()
