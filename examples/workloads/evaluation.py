"""Evaluation, "save the best" and early stopping after the optimizer, and a callback after each step.

Loses nothing if a survivor has completed the step, else up to --snapshot-every steps: a step is complete only
when its body has ended, so no evaluation is left out.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/evaluation.py
    torchrun --nproc-per-node 4 examples/workloads/evaluation.py --reference
"""

from __future__ import annotations

from pathlib import Path

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

EVERY, PATIENCE = 3, 4
args = arguments()
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)


class Best(nn.Module):
    """The best weights so far, their loss, and for how many evaluations none was better."""

    def __init__(self) -> None:
        super().__init__()
        self.model = mlp().requires_grad_(False)
        self.register_buffer("loss", torch.tensor(float("inf")))
        self.register_buffer("waited", torch.tensor(0))

    @torch.no_grad()
    def look(self) -> bool:
        """Evaluate. Returns whether to stop."""
        loss = cross_entropy(model(X[::2]), Y[::2])
        self.waited.add_(1)
        if loss < self.loss:
            self.loss.copy_(loss)
            self.waited.zero_()
            self.model.load_state_dict(model.state_dict())
        return int(self.waited) >= PATIENCE


best = Best()


def tell(rank: int, step: int) -> None:
    """Leave a file for a step that is complete, in the folder that --out names."""
    if args.out:
        folder = Path(args.out) / "told"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{rank}.{step}").touch()


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, best=best)

    @session.after_step
    def ended(step: int) -> None:
        tell(session.rank, step)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            cross_entropy(ddp(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % EVERY == EVERY - 1:
                with session.phase("evaluate"):
                    stop = best.look()
                if stop:
                    break

    train()
    finish(args, session.rank, model=model, optimizer=optimizer, best=best)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        cross_entropy(ddp(X[rows]), Y[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
        stop = step % EVERY == EVERY - 1 and best.look()
        tell(rank, step)
        if stop:
            break
    finish(args, rank, model=model, optimizer=optimizer, best=best)


if __name__ == "__main__":
    reference() if args.reference else main()
