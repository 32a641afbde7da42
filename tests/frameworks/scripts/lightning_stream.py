"""Train on an iterable data set that shuffles itself and knows its length, with Lightning's Trainer."""

import argparse
import random
from collections.abc import Iterator

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Shuffled(IterableDataset):
    """Every second sample for each of two ranks, in a random order, with noise of a generator of its own."""

    def __init__(self) -> None:
        self.points = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
        self.noise = random.Random(1)

    def __len__(self) -> int:
        return len(self.points) // 2

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        for index in torch.randperm(len(self.points))[rank::2].tolist():
            point = self.points[index]
            yield point + 0.1 * torch.randn(8) + 0.1 * self.noise.random(), point.sum()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        points, wanted = batch
        loss = (self.layers(points)[:, 0] - wanted).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    seed_everything(7)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        accumulate_grad_batches=2,
        log_every_n_steps=1,
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(Shuffled(), batch_size=4))


if __name__ == "__main__":
    main()
