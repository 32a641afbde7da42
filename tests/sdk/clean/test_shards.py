"""Shards of DTensors that a function holds itself are looked at like other tensors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from holdfast.clean.forgotten import ForgottenState
from holdfast.clean.unowned import Unowned
from holdfast.state.tracked import TrackedState
from tests.sdk.clean.again.called import Entry, called_again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.device_mesh import DeviceMesh


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(mesh: DeviceMesh) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    for name, each in list(model.named_parameters()):
        setattr(model, name, torch.nn.Parameter(distribute_tensor(each.detach(), mesh, [Shard(0)])))
    return model


def test_an_average_of_shards_that_steps_change_is_named(
    mesh: DeviceMesh, caplog: pytest.LogCaptureFixture
) -> None:
    """It came out differently after a death, without a word."""
    model, tracked = sharded(mesh), TrackedState()
    tracked.add("model", model)
    looking = ForgottenState(tracked)

    def train() -> None:
        average = [each.detach().clone() for each in model.parameters()]
        same = [each.detach().clone() for each in model.parameters()]
        for _ in range(3):
            with torch.no_grad():
                for each, weight in zip(average, model.parameters(), strict=True):
                    each.lerp_(weight + 1, 0.1)
            looking.step_ended()
        assert same

    looking.entered(train, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "average[0]" in said and "same" not in said


@pytest.mark.parametrize("inside", [True, False])
def test_shards_that_a_function_makes_before_its_steps(
    mesh: DeviceMesh, caplog: pytest.LogCaptureFixture, inside: bool
) -> None:
    """A look at them failed, and the training with it."""
    model, tracked = sharded(mesh), TrackedState()
    tracked.add("model", model)
    looking = ForgottenState(tracked)
    entry = Entry(tracks_inside=inside)
    calls = called_again(looking, tracked, entry)

    def train() -> None:
        calls.called()
        start = [each.detach().clone() for each in model.parameters()]
        calls.steps_begin(10, seeded=True, tells=True)
        with torch.no_grad():
            for each in model.parameters():
                each.add_(1)
        assert start

    looking.entered(train, ())
    calls.entered()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
        copied = [record.getMessage() for record in caplog.records]
        entry.first = 0
        train()
    assert ["start[0]" in each for each in copied] == ([] if inside else [True])
    assert "not what it was: start[0]" in caplog.records[-1].getMessage()


def test_a_shard_whose_whole_is_gathered_has_not_moved(mesh: DeviceMesh) -> None:
    """Where a step broke off in its forward pass, it counted as moved in living ranks. From then on its
    gradients, which no optimizer clears, were carried there, and no snapshot was whole any more."""
    model, tracked = torch.nn.Linear(4, 4), TrackedState()
    wrapped = fully_shard(model, mesh=mesh)
    tracked.add("model", model)
    tracked.add("optimizer", torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1))
    unowned = Unowned(tracked)
    unowned.arm()
    unowned.begin()
    model(torch.ones(2, 4))
    assert not isinstance(model.weight, DTensor)
    assert unowned.put_back() == "" and not any(unowned.stepped_by_hand())
    wrapped.reshard()
    with torch.no_grad():
        model.weight.add_(1)
    assert unowned.put_back() == "model.weight"


class Closed:
    """Its attributes cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


def test_a_look_before_the_steps_that_fails_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    tracked = TrackedState()
    looking = ForgottenState(tracked)
    entry = Entry(tracks_inside=True)
    calls = called_again(looking, tracked, entry)

    def train() -> None:
        calls.called()
        closed = {"thing": Closed()}
        calls.steps_begin(10, seeded=True, tells=True)
        assert closed

    looking.entered(train, ())
    calls.entered()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
        entry.first = 0
        train()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "cannot be seen" in said and "here" in said
