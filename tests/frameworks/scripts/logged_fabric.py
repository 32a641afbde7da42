"""Train a small model with Lightning Fabric and its loggers: logged_fabric.py FOLDER LOGGER,LOGGER."""

import os
import sys

import torch
from lightning.fabric.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from torch.utils.data import DataLoader, TensorDataset

from holdfast.integrations.fabric import Fabric, elastic
from tests.frameworks.pacing import pace

os.chdir(sys.argv[1])
LOGGERS = {
    "tensorboard": lambda: TensorBoardLogger("logs"),
    "csv": lambda: CSVLogger("lines"),
    "mlflow": lambda: MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"]),
    "wandb": lambda: WandbLogger(project="job"),
}


class Counter:
    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


@elastic
def main() -> None:
    fabric = Fabric(
        accelerator="cpu", devices=2, loggers=[LOGGERS[name]() for name in sys.argv[2].split(",")]
    )
    fabric.launch()
    fabric.seed_everything(7)
    inputs = torch.randn(96, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    inner = model
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    loader, counter = fabric.setup_dataloaders(DataLoader(data, batch_size=4, shuffle=True)), Counter()
    fabric.track(counter=counter)
    for epoch in fabric.epochs(2, loader):
        for points, wanted in loader:
            pace("begin", counter.steps)
            loss = (model(points) - wanted).square().mean()
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            counter.steps += 1
            fabric.log("loss", fabric.all_reduce(loss.detach().clone()), step=counter.steps)
            pace("logged", counter.steps)
        with torch.no_grad():
            whole = (inner(inputs) - data.tensors[1]).square().mean()
        fabric.log_dict({"val_loss": whole.item(), "epoch": epoch}, step=counter.steps)


if __name__ == "__main__":
    main()
