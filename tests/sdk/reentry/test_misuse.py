"""What a script does wrong with its session, alone: refused as under an agent, so that it is met early."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
import torch
from holdfast import Session
torch.manual_seed(0)
session = Session()
model, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Outer(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1)

    def step(self):
        self.inner.step()

class Around(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    def step(self):
        self.base.step()

def train(*optimizers, loop=True):
    @session.elastic
    def run():
        for _ in session.steps(3) if loop else ():
            (session.ddp(model)(torch.ones(3, 4)) + other(torch.ones(3, 4))).sum().backward()
            for each in optimizers:
                each.step()
    run()
"""
WARM = """session.track(model=model, optimizer=optimizer)

def warm(times):
    @session.elastic
    def run():
        for _ in range(times):
            optimizer.step()
        list(session.steps(1))
    run()

"""
REFUSED = {
    "session.track(model)": "track(<Linear>): give it a name, as in session.track(model=...)",
    "session.track(optimizer)": "give it a name, as in session.track(optimizer=...)",
    "session.track(model=model)\ntrain(optimizer)": (
        "step 0: SGD, an optimizer that is not tracked, updates parameters of the tracked 'model': its state "
        "would be lost when a rank dies; add it to session.track(optimizer=...)"
    ),
    "outer = Around(model.parameters())\nsession.track(model=model, optimizer=outer)\ntrain(outer)": (
        "track it beside the one that holds it: session.track(..., inner=optimizer.base)"
    ),
    "session.track(optimizer=optimizer)\ntrain(optimizer)": (
        "'optimizer' updates a parameter of shape (2, 4) that no tracked object has"
    ),
    "list(session.steps(3))": "steps: call it in the function under @session.elastic",
    "train(loop=False)": "run: it has returned without using session.steps(...)",
    WARM + "warm(3)": "run: it trains without session.steps(...), so nothing of that would survive",
}
TAKEN = (
    "session.track(model=model, optimizer=optimizer)\ntrain(optimizer, torch.optim.Adam(other.parameters()))",
    "outer = Outer(model.parameters())\nsession.track(model=model, optimizer=outer)\ntrain(outer)",
    "optimizer.step()\nsession.track(model=model)\ntorch.optim.SGD(model.parameters(), lr=1).step()\ntrain()",
    "session.track(model=model)\ntrain()\nsession.close()\noptimizer.step()",
    "assert session.ddp(model) is model",
    "outer = Around(model.parameters())\n"
    "session.track(model=model, optimizer=outer, inner=outer.base)\ntrain(outer)",
    WARM + "warm(2)",
)


def run(zygote: Zygote, folder: Path, text: str, **env: str) -> tuple[int, str]:
    """The exit code of a script that ends with this text, and what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    script, log = folder / "script.py", folder / "log"
    script.write_text(HEAD + text)
    pid = zygote.spawn(script, {**clean, "PYTHONPATH": str(ROOT), **env}, log)
    deadline = time.monotonic() + 240
    while (code := zygote.poll(pid)) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
    return code, log.read_text()


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_refused_with_the_cure(zygote: Zygote, tmp_path: Path, text: str) -> None:
    code, told = run(zygote, tmp_path, text)
    assert code == 1
    assert REFUSED[text] in told, told


def test_a_bare_module_is_not_given_to_a_rank_that_has_peers(zygote: Zygote, tmp_path: Path) -> None:
    code, told = run(zygote, tmp_path, "session.ddp(model)", WORLD_SIZE="2", RANK="1")
    assert code == 1
    assert "ddp: call it in the function under @session.elastic" in told, told


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_no_mistake_is_taken(zygote: Zygote, tmp_path: Path, text: str) -> None:
    code, told = run(zygote, tmp_path, text)
    assert code == 0, told
