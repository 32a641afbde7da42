"""Tune a small classifier with more of Lightning: a part of it frozen in the first epoch, gradients of more
and more batches, milestones, a collection of metrics, a validation within epochs, and workers that stay."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import BaseFinetuning, GradientAccumulationScheduler, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassPrecision, MulticlassRecall

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.BatchNorm1d(24), torch.nn.ReLU())
        self.head = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(24, 3))
        kinds = [MulticlassAccuracy(3), MulticlassPrecision(3), MulticlassRecall(3)]
        self.metrics = MetricCollection(kinds)

    def training_step(self, batch: list, index: int) -> torch.Tensor:
        inputs, classes = batch
        found = self.head(self.body(inputs))
        loss = torch.nn.functional.cross_entropy(found, classes)
        self.metrics.update(found, classes)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log_dict(self.metrics.compute())
        self.metrics.reset()

    def validation_step(self, batch: list, index: int) -> None:
        inputs, classes = batch
        loss = torch.nn.functional.cross_entropy(self.head(self.body(inputs)), classes)
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self) -> dict:
        trained = [each for each in self.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 7, 11], 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Unfreezing(BaseFinetuning):
    def freeze_before_training(self, module: LightningModule) -> None:
        self.freeze(module.body)

    def finetune_function(
        self, module: LightningModule, epoch: int, optimizer: torch.optim.Optimizer
    ) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.body, optimizer, lr=0.05)


def main() -> None:
    seed_everything(3)
    inputs = torch.randn(132, 16)
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        val_check_interval=0.4,
        limit_train_batches=0.85,
        limit_val_batches=2,
        log_every_n_steps=1,
        callbacks=[
            ModelCheckpoint(every_n_train_steps=4, save_top_k=-1, save_last=True),
            GradientAccumulationScheduler({0: 1, 1: 2, 2: 3}),
            Unfreezing(),
        ],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    order = WeightedRandomSampler([1.0, 2.0] * 66, 132)
    loader = DataLoader(data, batch_size=6, sampler=order, num_workers=1, persistent_workers=True)
    trainer.fit(Model(), loader, DataLoader(data, batch_size=12))


if __name__ == "__main__":
    main()
