"""Validate, fit, and test the best weights, with a metric that adds up; what the test found goes on."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )
        self.error = MeanMetric()
        self.register_buffer("found", torch.zeros(4))

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return (self.layers(inputs) - wanted).square().mean()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return self._loss(batch)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def test_step(self, batch: list[torch.Tensor]) -> None:
        self.error(self._loss(batch))
        self.log("error", self.error)
        self.log("test_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    seed_everything(7)
    inputs = torch.randn(132, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    held = DataLoader(data, batch_size=12)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        log_every_n_steps=1,
        callbacks=[ModelCheckpoint(monitor="val_loss", mode="max", save_top_k=1)],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    (before,) = trainer.validate(model, held)
    trainer.fit(model, DataLoader(data, batch_size=6, shuffle=True), held)
    trainer.save_checkpoint(f"{args.output_dir}/last.ckpt")
    (tested,) = trainer.test(model, held, ckpt_path="best")
    seen = trainer.callback_metrics["error"].item()
    model.found.copy_(torch.tensor([before["val_loss"], tested["error"], tested["test_loss"], seen]))
    trainer.test(model, held)


if __name__ == "__main__":
    main()
