"""The same script, ported: `holdfast run --nproc-per-node 2 --spares 1 examples/porting/train.py`."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

from holdfast import Session

EPOCHS, BATCH, ACCUMULATE = 3, 16, 2


def main() -> None:
    session = Session()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * 32)
    dataset = TensorDataset(torch.randn(1024, 32), torch.randn(1024, 1))
    session.track(model=model, average=average, optimizer=optimizer, schedule=schedule)
    session.after_step(lambda step: evaluate(average, dataset, step + 1) if step % 20 == 19 else None)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(model)
        loader = session.loader(dataset, BATCH * ACCUMULATE, micro=BATCH // session.world_size, num_workers=1)
        steps = session.steps(EPOCHS * len(dataset) // (BATCH * ACCUMULATE))
        for _step, batches in zip(steps, loader, strict=False):
            for inputs, wanted in batches:
                loss = (ddp(inputs) - wanted).square().mean() / len(batches)
                loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            average.update_parameters(model)

    train()
    if session.rank == 0:
        folder = sys.argv[1] if sys.argv[1:] else tempfile.gettempdir()
        torch.save(average.state_dict(), os.path.join(folder, "average.pt"))


def evaluate(model: torch.nn.Module, dataset: TensorDataset, step: int) -> None:
    with torch.no_grad():
        error = (model(dataset.tensors[0]) - dataset.tensors[1]).square().mean()
    dist.all_reduce(error)
    if dist.get_rank() == 0:
        print(f"step {step}: error {error.item() / dist.get_world_size():.4f}", flush=True)


main()
