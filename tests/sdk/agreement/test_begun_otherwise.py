"""Processes that are all new name what is chosen otherwise than when their state was trained; what is made
for each epoch is compared with what the same epoch had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sdk.agreement.test_beginnings import INSIDE_BEFORE, told_anew

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

CHOSEN = """
import functools
import json
import time
from pathlib import Path

import torch
from torch.nn import functional as F
from holdfast import Session

FOLDER = Path("FOLDER_HERE")
session = Session(seed=1)

def halved(out, wanted):
    return F.mse_loss(out, wanted) / 2

torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
session.track(model=model, optimizer=(optimizer := torch.optim.SGD(model.parameters(), lr=0.1)))
chosen = json.loads((FOLDER / "chosen.json").read_text())["way"]
loss_of = (halved, F.l1_loss)[chosen]
criterion = (torch.nn.MSELoss(), torch.nn.L1Loss())[chosen]
bent = functools.partial((torch.relu, torch.tanh)[chosen])
way = (torch.float32, torch.bfloat16)[chosen]
norm = (torch.nn.BatchNorm1d, torch.nn.LayerNorm)[chosen]
del chosen

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(20):
        if step == 10 and not (FOLDER / "fell").exists():
            time.sleep(1000)
        optimizer.zero_grad()
        out, wanted = bent(ddp(torch.ones(1, 2))), torch.ones(1, 1, dtype=way)
        (loss_of(out, wanted) + criterion(out, wanted)).backward()
        optimizer.step()

train()
"""
EPOCHS = """
import json
import time
from pathlib import Path

import torch
from holdfast import Session

FOLDER = Path("FOLDER_HERE")
session = Session(seed=1)
model = torch.nn.Linear(2, 1)
session.track(model=model, optimizer=(optimizer := torch.optim.SGD(model.parameters(), lr=0.1)))

@session.elastic
def train():
    ddp = session.ddp(model)
    inside = json.loads((FOLDER / "inside.json").read_text())
    for epoch in range(4):
        if session.step >= 6 * (epoch + 1):
            continue
        rows = torch.randn(8, 2, generator=torch.Generator().manual_seed(epoch))
        for step in session.steps(6 * (epoch + 1)):
            if step == 10 and not (FOLDER / "fell").exists():
                time.sleep(1000)
            optimizer.zero_grad()
            (ddp(rows).sum() * inside["scale"]).backward()
            optimizer.step()

train()
"""


@pytest.mark.parametrize("way", [0, 1])
def test_new_processes_name_another_function_class_or_choice(
    zygote: Zygote, tmp_path: Path, way: int
) -> None:
    said = told_anew(zygote, tmp_path, 2, {"chosen.json": f'{{"way": {way}}}'}, text=CHOSEN)
    if not way:
        assert said == []
        return
    (line,) = said
    named = line.partition("was trained: ")[2].partition(". If")[0]
    assert {"loss_of", "criterion", "bent.func", "way", "norm"} <= {*named.split(", ")}


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_what_is_made_anew_for_each_epoch_is_compared_with_that_epochs(
    zygote: Zygote, tmp_path: Path, scale: float
) -> None:
    changes = {"inside.json": INSIDE_BEFORE.replace("1.0", str(scale))}
    said = told_anew(zygote, tmp_path, 2, changes, text=EPOCHS)
    assert len(said) == (scale != 1.0)
    assert all("was trained: inside['scale'] (in train). If" in line for line in said)
