"""SyncBatchNorm: statistics over the batches of all ranks. Needs a GPU: torch has it for no other device.

Loses nothing on a kill, or one step, if only some of the survivors had completed it.

    holdfast run --nnodes 2 --nproc-per-node 1 --spares 1 examples/workloads/sync_batchnorm.py
    torchrun --nproc-per-node 2 examples/workloads/sync_batchnorm.py --reference
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from material import CLASSES, GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, Y, arguments, finish, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

args = arguments()


def build(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, CLASSES))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(layers).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(ddp: nn.Module, rows: torch.Tensor, device: torch.device) -> torch.Tensor:
    return cross_entropy(ddp(X[rows].to(device)), Y[rows].to(device))


def main() -> None:
    session = Session()
    model, optimizer = build(session.device)
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            loss_of(ddp, rows, session.device).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, model=model, optimizer=optimizer)


def reference() -> None:
    dist.init_process_group("nccl")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    model, optimizer = build(device)
    ddp = DistributedDataParallel(
        model, device_ids=[device.index], bucket_cap_mb=ONE_EACH, find_unused_parameters=True
    )
    for step in range(args.steps):
        loss_of(ddp, share(step), device).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(args, dist.get_rank(), model=model, optimizer=optimizer)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("skipped: SyncBatchNorm needs a GPU, and there is none")
    reference() if args.reference else main()
