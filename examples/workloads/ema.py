"""An exponential moving average of the weights (torch's AveragedModel), updated every `--every` steps.

Loses nothing if a survivor has completed the step, else up to --snapshot-every steps: the average changes
after the optimizer, and a state that is half changed is never used.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/ema.py --every 10
    torchrun --nproc-per-node 4 examples/workloads/ema.py --every 10 --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, X, Y, arguments, begin, finish, mlp, share
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from holdfast import Session

args = arguments(every={"type": int, "default": 1})
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def main() -> None:
    session = Session()
    session.track(model=model, optimizer=optimizer, ema=ema)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            cross_entropy(ddp(X[rows]), Y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % args.every == args.every - 1:
                ema.update_parameters(model)

    train()
    finish(args, session.rank, model=model, optimizer=optimizer, ema=ema)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        cross_entropy(ddp(X[rows]), Y[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % args.every == args.every - 1:
            ema.update_parameters(model)
    finish(args, rank, model=model, optimizer=optimizer, ema=ema)


if __name__ == "__main__":
    reference() if args.reference else main()
