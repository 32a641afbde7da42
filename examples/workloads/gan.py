"""A GAN: two models and two optimizers, each of which steps once in every step.

Loses nothing if a survivor has completed the step, else up to --snapshot-every steps: between the two
optimizers a rank's state is half changed.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/gan.py
    torchrun --nproc-per-node 4 examples/workloads/gan.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, arguments, begin, finish, mlp, noise, share
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

args = arguments()
generator, judge = mlp(out=WIDTH), mlp(out=1)
makes = torch.optim.Adam(generator.parameters(), lr=1e-2, betas=(0.5, 0.9))
judges = torch.optim.Adam(judge.parameters(), lr=1e-2, betas=(0.5, 0.9))


def judge_loss(ddp_judge: nn.Module, rows: torch.Tensor, step: int) -> torch.Tensor:
    with torch.no_grad():
        made = generator(noise(step, SAMPLES, WIDTH, seed=1)[rows])
    truth = torch.cat([torch.ones(len(rows), 1), torch.zeros(len(rows), 1)])
    return cross_entropy(ddp_judge(torch.cat([X[rows], made])), truth)


def generator_loss(ddp_generator: nn.Module, rows: torch.Tensor, step: int) -> torch.Tensor:
    made = ddp_generator(noise(step, SAMPLES, WIDTH, seed=2)[rows])
    return cross_entropy(judge(made), torch.ones(len(rows), 1))


def main() -> None:
    session = Session()
    session.track(generator=generator, judge=judge, makes=makes, judges=judges)

    @session.elastic
    def train() -> None:
        ddp_generator = session.ddp(generator, bucket_cap_mb=ONE_EACH)
        ddp_judge = session.ddp(judge, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            judge_loss(ddp_judge, rows, step).backward()
            judges.step()
            generator_loss(ddp_generator, rows, step).backward()
            makes.step()
            makes.zero_grad()
            judges.zero_grad()

    train()
    finish(args, session.rank, generator=generator, judge=judge, makes=makes, judges=judges)


def reference() -> None:
    rank = begin()
    ddp_generator, ddp_judge = (
        DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
        for model in (generator, judge)
    )
    for step in range(args.steps):
        rows = share(step)
        judge_loss(ddp_judge, rows, step).backward()
        judges.step()
        generator_loss(ddp_generator, rows, step).backward()
        makes.step()
        makes.zero_grad()
        judges.zero_grad()
    finish(args, rank, generator=generator, judge=judge, makes=makes, judges=judges)


if __name__ == "__main__":
    reference() if args.reference else main()
