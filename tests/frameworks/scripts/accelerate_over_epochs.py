"""Accumulate gradients over the end of an epoch with Accelerate, on samples with noise of their own."""

import argparse
import json
from pathlib import Path

import numpy
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from accelerate.utils import GradientAccumulationPlugin, set_seed
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True, type=Path)
args = parser.parse_args()
EPOCHS = 3


class Noisy(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.points = torch.randn(75, 8, generator=torch.Generator().manual_seed(1))
        self.rng = numpy.random.default_rng(1)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.from_numpy(self.rng.normal(size=8)).float()
        return self.points[index] + 0.1 * noise, (self.points[index].sum() > 0).long()


class Lines(GeneralTracker):
    """A tracker that writes lines."""

    name, requires_logging_directory = "lines", False

    @property
    def tracker(self) -> Path:
        return args.output_dir / "log.jsonl"

    def log(self, values: dict[str, float], step: int | None = None, **_: object) -> None:
        with self.tracker.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def main() -> None:
    args.output_dir.mkdir(exist_ok=True)
    whole = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=whole, cpu=True, log_with=Lines())
    accelerator.init_trackers("classifier")
    set_seed(7)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train_loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)

    for epoch in range(EPOCHS):
        for points, kinds in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(points), kinds)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean").item(), "epoch": epoch})
    accelerator.save_state(str(args.output_dir / "epoch-last"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
