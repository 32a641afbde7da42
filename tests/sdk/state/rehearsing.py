"""A rank that compiles with the backend COMPILE, and trains until the spare beside it has rehearsed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.callback import callback_handler

from holdfast import Session

OUT = Path(os.environ["OUT"])
BACKEND = os.environ["COMPILE"]
LONG, SHORT = 1_000_000, 3
PAUSE_S = 0.02
"""After each step: the compiler of the spare beside it needs the CPU more."""
session = Session()
model = torch.nn.Linear(2, 2)
session.track(model=model)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled: Any = torch.compile(double, backend=BACKEND)


def note(*_: object) -> None:
    (OUT / f"compiled.{os.environ['HOLDFAST_ROLE']}").touch()


@session.elastic
def train() -> None:
    for _ in session.steps(LONG if BACKEND == "inductor" else SHORT):
        doubled(torch.ones(2))
        time.sleep(PAUSE_S)
        if (OUT / "compiled.spare").exists():
            break


callback_handler.register_end_callback(note)
before = torch.get_rng_state()
try:
    train()
finally:
    (OUT / f"same.{os.environ['HOLDFAST_ROLE']}").write_text(str(torch.equal(torch.get_rng_state(), before)))
