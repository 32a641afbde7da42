"""Train with Lightning and all that adds up over an epoch: metrics, lists of outputs, early stopping."""

import argparse

import torch
import torchmetrics
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 3)
        )
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.val_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.outputs: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, classes = batch
        found = self.layers(inputs)
        self.accuracy(found, classes)
        self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
        self.log("most", found.max(), on_step=False, on_epoch=True, reduce_fx=max)
        loss = torch.nn.functional.cross_entropy(found, classes)
        self.log("loss", loss)
        self.outputs.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("mean_loss", torch.stack(self.outputs).mean(), sync_dist=True)
        self.outputs.clear()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        inputs, classes = batch
        found = self.layers(inputs)
        self.val_accuracy(found, classes)
        self.log("val_accuracy", self.val_accuracy)
        self.log("val_loss", torch.nn.functional.cross_entropy(found, classes), sync_dist=True)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.log_dict(grad_norm(self, norm_type=2))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


def main() -> None:
    seed_everything(3)
    inputs = torch.randn(132, 16)
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    saving = ModelCheckpoint(every_n_train_steps=4, save_top_k=2, monitor="val_loss")
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=26,
        accumulate_grad_batches=2,
        val_check_interval=5,
        log_every_n_steps=3,
        gradient_clip_val=0.5,
        callbacks=[saving, EarlyStopping("val_loss", patience=6), LearningRateMonitor()],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(data, batch_size=6, shuffle=True), DataLoader(data, batch_size=12))


if __name__ == "__main__":
    main()
