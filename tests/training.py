"""Make a small training script, for tests that break it and check that it continues."""

from __future__ import annotations

import textwrap

_SCRIPT = """
import torch
from holdfast import Session
{before}
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters())
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps({steps}):
        optimizer.zero_grad()
        ddp(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
{each}

train()
"""


def elastic(steps: int, *, before: str = "", each: str = "") -> str:
    """The script: `before` runs before there is a session, `each` after the optimizer in every step."""
    return _SCRIPT.format(before=before, steps=steps, each=textwrap.indent(textwrap.dedent(each), " " * 8))
