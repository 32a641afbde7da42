"""The first module whose output is not finite, found among healthy ones, spoiled ones and spoiled data."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from holdfast.telemetry.module_traces import INPUTS, LOSS, MODULE, WEIGHTS, ModuleOrigin, ModuleTrace


class Spoils(torch.nn.Module):
    """Gives NaN from its n-th call on."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.call, self.calls = call, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * math.nan if self.calls >= self.call else x


class Twice(torch.nn.Module):
    """Uses one module two times, and gives a dictionary."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"logits": (self.last(self.inner(self.inner(x))), None)}


def traced(model: torch.nn.Module, x: torch.Tensor, *, bad_loss: bool = False) -> list[ModuleOrigin]:
    found: list[ModuleOrigin] = []
    trace = ModuleTrace(model, found.append)
    model(x)
    if bad_loss:
        trace.loss_is_bad()
    trace.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return found


@pytest.mark.parametrize("call", [1, 2])
def test_the_innermost_module_and_its_call_are_named(call: int) -> None:
    (found,) = traced(Twice(Spoils(call)), torch.ones(2, 4))
    assert found == ModuleOrigin(MODULE, "inner", "Spoils", call)
    assert "module inner (Spoils) is the first" in found.words and ("call 2" in found.words) == (call == 2)


def test_modules_behind_the_first_one_are_not_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Spoils(1), torch.nn.Linear(4, 4), Spoils(1))
    assert [each.module for each in traced(model, torch.ones(2, 4))] == ["1"]


def test_spoiled_parameters_are_told_from_a_module_that_spoils() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    with torch.no_grad():
        next(model[1].parameters()).fill_(math.inf)
    assert [(each.kind, each.module) for each in traced(model, torch.ones(2, 4))] == [(WEIGHTS, "1")]


def test_spoiled_data_is_no_fault_of_a_module() -> None:
    x = torch.full((2, 4), math.nan)
    assert [each.kind for each in traced(torch.nn.Linear(4, 4), x)] == [INPUTS]


def test_a_loss_that_alone_is_not_finite_is_no_fault_of_the_model() -> None:
    model = torch.nn.Linear(4, 4)
    assert traced(model, torch.ones(2, 4)) == []
    assert [each.kind for each in traced(model, torch.ones(2, 4), bad_loss=True)] == [LOSS]
    assert [each.kind for each in traced(Spoils(1), torch.ones(2), bad_loss=True)] == [MODULE]


def test_tensors_without_real_values_are_passed_over() -> None:
    model = torch.nn.Sequential(torch.nn.Identity())
    for x in (torch.ones(2, dtype=torch.int64), torch.zeros(0), torch.ones(2, device="meta")):
        assert traced(model, x) == []
    assert [each.kind for each in traced(model, torch.tensor([1j * math.nan]))] == [INPUTS]
