"""Fit a small model twice: with a data module that counts, nested hyperparameters and two loggers."""

import argparse

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, loggers, seed_everything
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Counted(LightningDataModule):
    """Data that knows how many samples this rank has trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        inputs = torch.randn(132, 16, generator=torch.Generator().manual_seed(1))
        self.data = TensorDataset(inputs, inputs.sum(1, keepdim=True))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=6, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=12)

    def on_after_batch_transfer(self, batch: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        self.seen += len(batch[0]) if self.trainer.training else 0
        return batch

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


class Model(LightningModule):
    def __init__(self, options: dict[str, float]) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return (self.layers(inputs) - wanted).square().mean()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        if self.trainer.global_step == 3:
            self.hparams.options["scale"] = 0.5
        weight = self.hparams.options["scale"] * (1 + 1e-3 * self.trainer.datamodule.seen)
        loss = self._loss(batch) * weight
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.options["rate"], momentum=0.9)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        }


def main() -> None:
    seed_everything(7)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        max_time={"hours": 1},
        val_check_interval=0.5,
        log_every_n_steps=1,
        callbacks=[
            ModelCheckpoint(every_n_train_steps=4, save_top_k=-1, save_last="link"),
            LearningRateMonitor(),
        ],
        logger=[CSVLogger(args.output_dir), loggers.TensorBoardLogger(args.output_dir)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = Model({"rate": 1e-3, "scale": 1.0}), Counted()
    trainer.fit(model, data)
    if not trainer.checkpoint_callback.best_model_path:
        raise RuntimeError("the first fit has left no checkpoint")
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, data)


if __name__ == "__main__":
    main()
