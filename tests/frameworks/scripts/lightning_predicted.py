"""Fit, predict, test and predict once more; a callback writes predictions, and some go on in the weights."""

import argparse
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Writer(BasePredictionWriter):
    def write_on_epoch_end(self, trainer, module, predictions, batch_indices) -> None:
        torch.save([predictions, batch_indices], f"{args.output_dir}/predictions-{trainer.global_rank}.pt")


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.register_buffer("found", torch.zeros(6, 11))
        self.losses: list[torch.Tensor] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return (self.layers(inputs) - wanted).square().mean()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return self._loss(batch)

    def test_step(self, batch: list[torch.Tensor]) -> None:
        self.losses.append(self.all_gather(self._loss(batch)).mean())

    def on_test_epoch_end(self) -> None:
        self.log("total", torch.stack(self.losses).sum(), sync_dist=True)
        self.losses.clear()

    def predict_step(
        self, batch: list[torch.Tensor], batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, torch.Tensor]:
        return {"guess": self(batch[0]), "drawn": torch.rand(())}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    seed_everything(7)
    inputs = torch.randn(132, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    held = DataLoader(data, batch_size=6)
    Path(args.output_dir).mkdir(exist_ok=True)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        callbacks=[Writer("epoch")],
        logger=CSVLogger(args.output_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, DataLoader(data, batch_size=6, shuffle=True))
    first = trainer.predict(model, held)
    (tested,) = trainer.test(model, held)
    second = trainer.predict(model, [held, held], return_predictions=True)
    model.found[0] = torch.tensor([each["guess"].mean() for each in first])
    model.found[1] = torch.tensor([each["guess"].mean() for each in second[1]])
    model.found[5] = tested["total"]
    model.found[4] = drawn = torch.stack([each["drawn"] for each in second[1]])
    assert drawn[0] != first[0]["drawn"], "all predictions draw the same numbers"
    written = torch.load(f"{args.output_dir}/predictions-{trainer.global_rank}.pt")
    model.found[2] = torch.tensor([each["guess"].mean() for each in written[0][0]])
    model.found[3] = torch.tensor([float(sum(each)) for each in written[1][0]])


if __name__ == "__main__":
    main()
