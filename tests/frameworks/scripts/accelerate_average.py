"""Train a small classifier with Accelerate, average its weights, and stop when the average gets no better."""

import argparse
import json
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from accelerate.utils import set_seed
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True, type=Path)
args = parser.parse_args()
EPOCHS, PATIENCE = 12, 2


class Stopper:
    """Knows the best loss, and how many epochs ago it was."""

    def __init__(self) -> None:
        self.best, self.ago, self.steps = float("inf"), 0, 0

    def over(self, loss: float) -> bool:
        self.ago = 0 if loss < self.best - 0.02 else self.ago + 1
        self.best = min(self.best, loss)
        return self.ago >= PATIENCE

    def state_dict(self) -> dict[str, float]:
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


class Lines(GeneralTracker):
    name, requires_logging_directory = "lines", False

    @property
    def tracker(self) -> Path:
        return args.output_dir / "log.jsonl"

    def log(self, values: dict[str, float], step: int | None = None, **_: object) -> None:
        with self.tracker.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def main() -> None:
    args.output_dir.mkdir(exist_ok=True)
    accelerator = Accelerator(cpu=True, log_with=Lines())
    accelerator.init_trackers("classifier")
    set_seed(7)
    points = torch.randn(75, 8)
    data = TensorDataset(points, (points.sum(1) > 0).long())
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=240)
    train_loader = DataLoader(data, batch_size=4, shuffle=True)
    model, optimizer, train_loader, schedule = accelerator.prepare(model, optimizer, train_loader, schedule)
    stopper = Stopper()
    accelerator.register_for_checkpointing(stopper, average)

    for epoch in range(EPOCHS):
        for inputs, kinds in train_loader:
            loss = nn.functional.cross_entropy(model(inputs), kinds)
            accelerator.backward(loss)
            optimizer.step()
            average.update_parameters(accelerator.unwrap_model(model))
            schedule.step()
            optimizer.zero_grad()
            stopper.steps += 1
        average.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(average(data.tensors[0]), data.tensors[1])
        loss = accelerator.reduce(loss, "mean").item()
        accelerator.log({"loss": loss, "epoch": epoch}, step=stopper.steps)
        over = stopper.over(loss)
        accelerator.save_state(str(args.output_dir / f"epoch-{epoch}"))
        if over:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
