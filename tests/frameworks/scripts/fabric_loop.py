"""Train a small classifier with a loop of its own and Lightning Fabric, as anybody would."""

import argparse
import json
from pathlib import Path

import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import Logger
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True, type=Path)
parser.add_argument("--num-workers", type=int, default=0)
args = parser.parse_args()
EPOCHS = 3


class Noisy(torch.utils.data.Dataset):
    """Samples of two kinds, with noise that is drawn when they are fetched."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.points = torch.randn(count, 8, generator=generator)
        self.kinds = (self.points.sum(1) > 0).long()

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.points[index] + 0.1 * torch.randn(8), self.kinds[index]


class Progress:
    """What the loop counts itself."""

    def __init__(self) -> None:
        self.batches, self.steps, self.loss = 0, 0, 0.0

    def state_dict(self) -> dict[str, float]:
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


class Lines(Logger):
    """A logger that writes lines."""

    name, version = "lines", 0

    def log_hyperparams(self, *_: object, **__: object) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        with (args.output_dir / "log.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")


def main() -> None:
    args.output_dir.mkdir(exist_ok=True)
    fabric = Fabric(accelerator="cpu", devices=2, precision="bf16-mixed", loggers=Lines())
    fabric.launch()
    fabric.seed_everything(7)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    model, optimizer = fabric.setup(model, optimizer)
    train_loader = DataLoader(Noisy(69, 1), batch_size=4, shuffle=True, num_workers=args.num_workers)
    train_loader, eval_loader = fabric.setup_dataloaders(train_loader, DataLoader(Noisy(32, 2), batch_size=4))
    progress = Progress()

    for epoch in range(EPOCHS):
        model.train()
        for points, kinds in train_loader:
            progress.batches += 1
            whole = progress.batches % 2 == 0
            with fabric.no_backward_sync(model, enabled=not whole):
                loss = nn.functional.cross_entropy(model(points), kinds)
                fabric.backward(loss / 2)
            progress.loss += fabric.all_reduce(loss.detach().clone()).item()
            if whole:
                norm = fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                progress.steps += 1
                rate = schedule.get_last_lr()[0]
                values = {"loss": progress.loss, "rate": rate, "norm": norm.item(), "epoch": epoch}
                if fabric.is_global_zero:
                    fabric.log_dict(values, step=progress.steps)
        model.eval()
        right = torch.zeros(())
        for points, kinds in eval_loader:
            with torch.no_grad():
                right += fabric.all_reduce((model(points).argmax(1) == kinds).float().sum(), reduce_op="sum")
        if fabric.is_global_zero:
            fabric.log("accuracy", right / 32, step=progress.steps)
        state = {"model": model, "optimizer": optimizer, "schedule": schedule.state_dict()}
        fabric.save(args.output_dir / f"epoch-{epoch}.ckpt", state | {"progress": progress.state_dict()})


if __name__ == "__main__":
    main()
