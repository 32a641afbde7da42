"""Train a small model with Accelerate and its trackers: logged_accelerate.py FOLDER LOGGER,LOGGER."""

import os
import sys

import torch
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from holdfast.integrations.accelerate import Accelerator, elastic
from tests.frameworks.pacing import pace

os.chdir(sys.argv[1])


class Counter:
    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


@elastic
def main() -> None:
    accelerator = Accelerator(cpu=True, log_with=sys.argv[2].split(","), project_dir="logs")
    accelerator.init_trackers("job", config={"rate": 0.01})
    set_seed(7)
    inputs = torch.randn(96, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader, counter = DataLoader(data, batch_size=4, shuffle=True), Counter()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(counter)
    for epoch in accelerator.epochs(2, loader):
        for points, wanted in loader:
            pace("begin", counter.steps)
            loss = (model(points) - wanted).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            counter.steps += 1
            accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean").item()}, step=counter.steps)
            pace("logged", counter.steps)
        with torch.no_grad():
            whole = (accelerator.unwrap_model(model)(inputs) - data.tensors[1]).square().mean()
        accelerator.log({"val_loss": whole.item(), "epoch": epoch}, step=counter.steps)
    accelerator.end_training()


if __name__ == "__main__":
    main()
