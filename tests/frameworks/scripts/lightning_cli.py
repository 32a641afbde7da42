"""Train by Lightning's command line interface, which saves its configuration beside the log."""

import argparse
from pathlib import Path

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self, width: int = 32, rate: float = 1e-2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, width), torch.nn.Dropout(0.1), torch.nn.Linear(width, 1)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        loss = (self.layers(inputs) - wanted).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)


class Data(LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        inputs = torch.randn(132, 16, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=6, shuffle=True)


def main() -> None:
    trainer = {
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "ddp",
        "max_epochs": 2,
        "logger": {"class_path": "CSVLogger", "init_args": {"save_dir": args.output_dir}},
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    cli = LightningCLI(
        Model, Data, seed_everything_default=7, trainer_defaults=trainer, args=["fit", "--model.width=24"]
    )
    assert "width: 24" in Path(cli.trainer.log_dir, "config.yaml").read_text()


if __name__ == "__main__":
    main()
