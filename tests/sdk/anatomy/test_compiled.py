"""Compiled modules: no graph break, no second compilation, and the same times as others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo as dynamo

from holdfast import Session
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.step_times import StepTimesPage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAP_S = 0.05
ROWS = torch.ones(3, 4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(x).relu()
        return output


class Sleeping(torch.autograd.Function):
    """Not compiled: it is applied to what the compiled module gets, and so the last of the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(NAP_S)
        return gradient


def whole(net: Net) -> Callable[[torch.Tensor], torch.Tensor]:
    """A compiled function that calls the tracked module: no hook is seen in it."""
    return torch.compile(lambda rows: net(rows).square(), fullgraph=True, backend="eager")


def in_place(net: Net) -> Net:
    net.compile(fullgraph=True, backend="eager")
    return net


SLEEPING: Any = Sleeping.apply
FORMS: dict[str, tuple[Callable[[Net], Any], bool]] = {
    "module": (lambda net: torch.compile(net, fullgraph=True, backend="eager"), True),
    "in place": (in_place, True),
    "function": (whole, False),
}
"""How the tracked module is compiled, and whether its forward pass can be told."""


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", ["before", "within"])
def test_a_compiled_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, first: str) -> None:
    page = ProgressPage.create(tmp_path / "m.board")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "m.board"))
    dynamo.reset()
    session, net = Session(), Net()
    make, told = FORMS[form]
    compiled = make(net)
    if first == "before":
        compiled(ROWS.clone().requires_grad_() * 1)
    session.track(net=net)

    @session.elastic
    def train() -> None:
        called = session.ddp(compiled) if isinstance(compiled, torch.nn.Module) else compiled
        for _ in session.steps(20):
            called(SLEEPING(ROWS.clone().requires_grad_())).sum().backward()

    with dynamo.config.patch(error_on_recompile=True):
        train()
    found = StepTimesPage(page).read()
    session.close()
    dynamo.reset()
    assert found is not None and found.steps == 20
    assert 3 <= found.covered < 20 if told else found.covered == 0, "steps are left out, in the same code"
    assert (found.backward_ns > found.other_ns) == told
