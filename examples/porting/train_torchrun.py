"""A training script as it is run today: `torchrun --nproc-per-node 2 examples/porting/train_torchrun.py`."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH, ACCUMULATE = 3, 16, 2


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * 32)
    dataset = TensorDataset(torch.randn(1024, 32), torch.randn(1024, 1))
    sampler = DistributedSampler(dataset, world_size, rank)
    loader = DataLoader(dataset, BATCH // world_size, sampler=sampler, num_workers=1)
    ddp = DistributedDataParallel(model)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for batch, (inputs, wanted) in enumerate(loader):
            loss = (ddp(inputs) - wanted).square().mean() / ACCUMULATE
            loss.backward()
            if batch % ACCUMULATE == ACCUMULATE - 1:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                average.update_parameters(model)
                step += 1
                if step % 20 == 0:
                    evaluate(average, dataset, step)
    if rank == 0:
        folder = sys.argv[1] if sys.argv[1:] else tempfile.gettempdir()
        torch.save(average.state_dict(), os.path.join(folder, "average.pt"))
    dist.destroy_process_group()


def evaluate(model: torch.nn.Module, dataset: TensorDataset, step: int) -> None:
    with torch.no_grad():
        error = (model(dataset.tensors[0]) - dataset.tensors[1]).square().mean()
    dist.all_reduce(error)
    if dist.get_rank() == 0:
        print(f"step {step}: error {error.item() / dist.get_world_size():.4f}", flush=True)


main()
