"""A process that begins with other values than those that it joins names them; what differs between ranks
from the beginning does not count."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

TRAINING = """
import json
import os
import time
from pathlib import Path

import torch
from holdfast import Session

FOLDER = Path({folder!r})
session = Session()
settings = json.loads((FOLDER / "settings.json").read_text())
table = torch.full((8,), settings["weight"])
start = 5 if (FOLDER / "own.pt").exists() else 0
pid, began, run, folder = os.getpid(), time.time(), time.strftime("%Y%m%d-%H%M%S"), str(FOLDER)
drawn = int.from_bytes(os.urandom(2), "big") / 7
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(20):
        if (step, session.rank, session.generation) == (10, 1, 1):
            time.sleep(1000)
        optimizer.zero_grad()
        (ddp(torch.ones(1, 2)).sum() * table[0] * settings["weight"] + start).backward()
        optimizer.step()

train()
"""


@pytest.mark.parametrize("edited", [True, False])
def test_what_is_read_anew_and_differs_is_named(zygote: Zygote, tmp_path: Path, edited: bool) -> None:
    script = tmp_path / "script.py"
    (tmp_path / "settings.json").write_text('{"weight": 0.5, "name": "small"}')
    script.write_text(TRAINING.format(folder=str(tmp_path)))
    with Node(zygote, script, 2) as node:
        node.run(until=lambda: node.generation and node.seat(1).snapshot[1] == 10)
        if edited:
            (tmp_path / "settings.json").write_text('{"weight": 0.25, "name": "small"}')
            (tmp_path / "own.pt").touch()
        os.kill(node.seat(1).pid, signal.SIGKILL)
        node.run()
        said = [
            line
            for member in node.members.values()
            for line in member.log.read_text().splitlines()
            if "has begun later" in line
        ]
    if not edited:
        assert said == []
        return
    (line,) = said
    names = line.partition("what they have: ")[2].partition(". If")[0]
    assert sorted(names.split(", ")) == ["settings['weight']", "start", "table"]
