"""Two towers (as CLIP): the negatives of a batch are gathered from all ranks, with their gradients.

Loses nothing on a kill, or one step, if only some of the survivors had completed it.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/two_tower.py
    torchrun --nproc-per-node 4 examples/workloads/two_tower.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, arguments, begin, finish, mlp, noise, share
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

OUT = 6
TEXT = X + 0.3 * noise(0, SAMPLES, WIDTH, seed=9)


class Towers(nn.Module):
    """One tower for each kind of data, and a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = mlp(out=OUT), mlp(out=OUT)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        sides = normalize(self.image(images), dim=1), normalize(self.text(texts), dim=1)
        every = [torch.cat(all_gather(side)) for side in sides]
        scores = self.scale.exp() * every[0] @ every[1].T
        truth = torch.arange(len(scores))
        return (cross_entropy(scores, truth) + cross_entropy(scores.T, truth)) / 2


args = arguments()
model = Towers()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            ddp(X[rows], TEXT[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        ddp(X[rows], TEXT[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
