"""Train a small model with Lightning's Trainer and one of several schedules of the learning rate."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
)
from torch.utils.data import DataLoader, TensorDataset

SCHEDULES = {
    "milestones": lambda optimizer: MultiStepLR(optimizer, [4, 12, 23], 0.5),
    "epochs": lambda optimizer: MultiStepLR(optimizer, [1, 2], 0.1),
    "one_cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=40),
    "sequence": lambda optimizer: SequentialLR(
        optimizer,
        [LinearLR(optimizer, total_iters=5), CosineAnnealingWarmRestarts(optimizer, T_0=7)],
        [5],
    ),
}
parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
parser.add_argument("--schedule", choices=SCHEDULES, required=True)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return (self.layers(inputs) - wanted).square().mean()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
        interval = "epoch" if args.schedule == "epochs" else "step"
        schedule = {"scheduler": SCHEDULES[args.schedule](optimizer), "interval": interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main() -> None:
    seed_everything(5)
    inputs = torch.randn(126, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        log_every_n_steps=1,
        callbacks=[LearningRateMonitor(log_momentum=True)],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(data, batch_size=6, shuffle=True), DataLoader(data, batch_size=12))


if __name__ == "__main__":
    main()
