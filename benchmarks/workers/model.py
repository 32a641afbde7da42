"""The training step that every contender takes: a small MLP, and a sleep in place of heavy arithmetic.

The sleep keeps a step at about 20 ms, however many ranks share a core."""

from __future__ import annotations

import time

import torch
from torch import nn

WIDTH, BATCH, STEP_S = 256, 32, 0.02
CHECKPOINT_EVERY = 50


def build() -> tuple[nn.Module, torch.optim.AdamW]:
    """The model with the same weights in every process, and AdamW over them."""
    torch.set_num_threads(1)
    torch.manual_seed(42)
    hidden = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(WIDTH, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_of(model: nn.Module, generator: torch.Generator) -> torch.Tensor:
    """Forward on random input, then the sleep."""
    loss: torch.Tensor = model(torch.randn(BATCH, WIDTH, generator=generator)).pow(2).mean()
    time.sleep(STEP_S)
    return loss


def step(model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
    """One whole step."""
    optimizer.zero_grad()
    loss_of(model, generator).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
