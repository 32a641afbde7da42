"""A half-run step leaves no trace in a model's buffers, whatever they are and whatever was done to them."""

from __future__ import annotations

from typing import Any

import torch

from holdfast.state.buffers import Buffers


class Odd(torch.nn.Module):
    """Buffers of every kind that is kept in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.other = torch.nn.BatchNorm1d(3)
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("none", None)
        self.register_buffer("table", torch.zeros(1 << 19))
        self.register_buffer("shared", self.norm.running_mean)
        self.register_buffer("grown", torch.ones(2, requires_grad=True))
        self.register_buffer("brief", torch.ones(5, dtype=torch.bfloat16))

    brief: torch.Tensor
    turned: torch.Tensor

    def values(self) -> list[list[Any]]:
        return [[name, buffer.tolist()] for name, buffer in self.named_buffers()]


def run_half_a_step(model: Odd) -> None:
    model.norm(torch.randn(8, 3))
    model.other(torch.randn(8, 3))
    with torch.no_grad():
        for name in ("turned", "table", "grown", "brief"):
            getattr(model, name).add_(1)


def test_what_a_step_did_is_undone() -> None:
    model = Odd()
    buffers = Buffers([model])
    for _ in range(3):
        buffers.keep()
        before = model.values()
        run_half_a_step(model)
        assert model.values() != before
        buffers.rewind()
        assert model.values() == before
        run_half_a_step(model)


def test_a_buffer_that_is_replaced_within_the_step_comes_back() -> None:
    model = Odd()
    buffers = Buffers([model])
    buffers.keep()
    before, was = model.values(), model.brief
    model.brief = torch.zeros(7)
    model.norm.running_var = None
    buffers.rewind()
    assert model.values() == before and model.brief is was


def test_buffers_that_moved_between_steps_are_followed() -> None:
    model = Odd()
    buffers = Buffers([model])
    buffers.keep()
    model.norm.running_var = torch.full((3,), 7.0)
    model.other.running_mean.data = torch.full((3,), 9.0)  # type: ignore[union-attr]
    model.brief = model.brief.to(torch.float64)
    run_half_a_step(model)
    buffers.keep()
    before = model.values()
    run_half_a_step(model)
    buffers.rewind()
    assert model.values() == before
