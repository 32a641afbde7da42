"""Gradients that stay as zeros count: an optimizer steps them with its momentum and weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from holdfast.clean.guard import Guard
from holdfast.ipc.arena import Arena
from holdfast.snapshots import snapshot
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from pathlib import Path


class Heads:
    """Two heads, of which a step uses one."""

    def __init__(self, *, none: bool) -> None:
        torch.manual_seed(0)
        self.none = none
        self.model = torch.nn.ModuleList(
            [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1, weight_decay=0.1)
        self.tracked = TrackedState()
        self.tracked.add("m", self.model)
        self.tracked.add("o", self.optimizer)
        self.guard = Guard(self.tracked)
        self.guard.arm()

    def step(self, number: int, *, breaks: bool = False) -> None:
        self.guard.begin(number, keep_random=False)
        self.optimizer.zero_grad(set_to_none=self.none)
        self.model[number % 2](torch.ones(3, 2)).sum().backward()
        if breaks:
            assert self.guard.settle(number) == number
            self.guard.arm()
        else:
            self.optimizer.step()
            self.guard.end()

    def graded(self) -> list[bool]:
        return [head.weight.grad is not None for head in self.model]


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("breaks_at", [2, 5])
def test_a_step_that_runs_again_steps_what_it_would_have_stepped(breaks_at: int, none: bool) -> None:
    calm, struck = Heads(none=none), Heads(none=none)
    for number in range(7):
        calm.step(number)
        if number == breaks_at:
            struck.step(number, breaks=True)
        struck.step(number)
    for own, other in zip(calm.model.parameters(), struck.model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_zeros_are_given_back_where_they_count_and_nowhere_else() -> None:
    struck = Heads(none=False)
    for number in range(5):
        struck.step(number)
    struck.step(5, breaks=True)
    assert struck.graded() == [True, True, False]
    cleared = Heads(none=True)
    for number in range(0, 10, 2):
        cleared.step(number)
    cleared.step(10, breaks=True)
    assert cleared.graded() == [False, False, False]


def test_a_new_process_gets_them_with_the_state(tmp_path: Path) -> None:
    old, new = Heads(none=False), Heads(none=False)
    for number in range(4):
        old.step(number)
    own = snapshot.SnapshotWriter(old.tracked)
    with Arena.create(tmp_path / "a.arena", own.needs()) as arena:
        own.attach(str(arena.path))
        assert own.write(4, 1, released_step=-1) == 0
        snapshot.load(str(arena.path), 4, new.tracked)
        own.detach()
    new.guard.arm()
    assert new.graded() == [True, True, False]
    for number in range(4, 7):
        old.step(number)
        new.step(number)
    for left, right in zip(old.model.parameters(), new.model.parameters(), strict=True):
        assert torch.equal(left, right)


def test_gradients_that_are_views_of_one_tensor_stay_so() -> None:
    """A script that makes them before its function reduces that tensor, and not what the parameters have."""
    calm, struck = Heads(none=False), Heads(none=False)
    flats = []
    for heads in (calm, struck):
        parameters = list(heads.model.parameters())
        flats.append(torch.zeros(sum(each.numel() for each in parameters)))
        parts = torch.split(flats[-1], [each.numel() for each in parameters])
        for each, part in zip(parameters, parts, strict=True):
            each.grad = part.view_as(each)
        heads.guard.arm()
    for number in range(6):
        calm.step(number)
        if number in (1, 4):
            struck.step(number, breaks=True)
            assert not flats[1].any()
        struck.step(number)
        assert flats[1].any() and torch.equal(*flats)
