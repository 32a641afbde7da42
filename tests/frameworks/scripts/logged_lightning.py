"""Train a small model with Lightning's Trainer and its loggers: logged_lightning.py FOLDER LOGGER,LOGGER."""

import os
import sys

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, loggers, seed_everything
from torch.utils.data import DataLoader, TensorDataset

from holdfast.integrations.lightning import HoldfastStrategy
from tests.frameworks.pacing import pace

os.chdir(sys.argv[1])
LOGGERS = {
    "tensorboard": lambda: loggers.TensorBoardLogger("logs"),
    "csv": lambda: loggers.CSVLogger("lines"),
    "mlflow": lambda: loggers.MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"]),
    "wandb": lambda: loggers.WandbLogger(project="job"),
}


class Model(LightningModule):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.save_hyperparameters()
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

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)


class Pace(Callback):
    def on_train_batch_start(self, trainer, *_) -> None:
        pace("begin", trainer.global_step)

    def on_train_batch_end(self, trainer, *_) -> None:
        pace("logged", trainer.global_step)


def main() -> None:
    seed_everything(7)
    inputs = torch.randn(96, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=HoldfastStrategy(),
        max_epochs=2,
        log_every_n_steps=1,
        logger=[LOGGERS[name]() for name in sys.argv[2].split(",")],
        callbacks=[Pace()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, evaluated = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=12)
    trainer.fit(Model(rate=1e-2), train, evaluated)


if __name__ == "__main__":
    main()
