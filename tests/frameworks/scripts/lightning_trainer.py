"""Train a small model with Lightning's Trainer, as anybody would."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
parser.add_argument("--num-workers", type=int, default=0)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.Dropout(0.1),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 1),
        )

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return (self.layers(inputs) - wanted).square().mean()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.log_dict(grad_norm(self, norm_type=2))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    seed_everything(7)
    inputs = torch.randn(132, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    workers = args.num_workers
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        precision="bf16-mixed",
        max_epochs=2,
        accumulate_grad_batches=2,
        log_every_n_steps=1,
        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True)],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Model(),
        DataLoader(data, batch_size=6, shuffle=True, num_workers=workers),
        DataLoader(data, batch_size=12),
    )


if __name__ == "__main__":
    main()
