"""Train a small classifier with a loop of its own and Accelerate, as anybody would."""

import argparse
import json
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True, type=Path)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--max-steps", type=int, default=10**6)
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
        self.steps, self.loss = 0, 0.0

    def state_dict(self) -> dict[str, float]:
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


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
    accelerator = Accelerator(
        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()
    )
    accelerator.init_trackers("classifier")
    set_seed(7)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    train_loader = DataLoader(Noisy(75, 1), batch_size=4, shuffle=True, num_workers=args.num_workers)
    eval_loader = DataLoader(Noisy(30, 2), batch_size=4)
    model, optimizer, train_loader, eval_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, schedule
    )
    progress = Progress()
    accelerator.register_for_checkpointing(progress)

    for epoch in range(EPOCHS):
        model.train()
        for points, kinds in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(points), kinds)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            progress.loss += accelerator.reduce(loss.detach(), "mean").item()
            if accelerator.sync_gradients:
                progress.steps += 1
                rate = schedule.get_last_lr()[0]
                values = {"loss": progress.loss, "rate": rate, "norm": norm.item(), "epoch": epoch}
                accelerator.log(values, step=progress.steps)
                if progress.steps >= args.max_steps:
                    break
        model.eval()
        right = 0
        for points, kinds in eval_loader:
            with torch.no_grad():
                found = model(points).argmax(1)
            right += accelerator.gather_for_metrics((found == kinds).float()).sum().item()
        accelerator.log({"accuracy": right / len(eval_loader.dataset)}, step=progress.steps)
        accelerator.save_state(str(args.output_dir / f"epoch-{epoch}"))
        if progress.steps >= args.max_steps:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
