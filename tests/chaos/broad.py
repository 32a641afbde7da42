"""Be a training that sends much: `broad.py STEPS`. Each step sums 2 MB of gradients over all ranks."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

from holdfast import Session

PACE_S = 0.1


def main() -> None:
    torch.set_num_threads(1)
    session = Session()
    torch.manual_seed(5)
    model = nn.Linear(512, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        wrapped = session.ddp(model)
        session.restore()
        for _ in session.steps(int(sys.argv[1])):
            optimizer.zero_grad(set_to_none=True)
            loss = wrapped(torch.randn(4, 512)).pow(2).mean()
            time.sleep(PACE_S)
            loss.backward()
            optimizer.step()

    train()
    session.close()


if __name__ == "__main__":
    main()
