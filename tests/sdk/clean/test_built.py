"""That a module is built differently is noticed, wherever the difference is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.state import built

if TYPE_CHECKING:
    from collections.abc import Callable


class Built(torch.nn.Module):
    """Some dicts of this module and its parts are empty, and some are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.GELU()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.ones(1))


def replace_by_an_equal_one(model: Any) -> None:
    model.weight = torch.nn.Parameter(torch.ones(1))


def rename(model: Any) -> None:
    model._parameters["other"] = model._parameters.pop("weight")


def fill_what_was_empty(model: Any) -> None:
    model.second.register_buffer("new", torch.ones(1))


def remove_the_only_one(model: Any) -> None:
    del model.seen


def move_to_the_next_dict(model: Any) -> None:
    buffers = dict(model._buffers)
    model._buffers.clear()
    model._buffers.update({"weight": model._parameters.pop("weight"), **buffers})


def swap_two_submodules(model: Any) -> None:
    model._modules["first"], model._modules["second"] = model.second, model.first


def reorder(model: Any) -> None:
    model._modules["first"] = model._modules.pop("first")


@pytest.mark.parametrize(
    "change",
    [
        replace_by_an_equal_one,
        rename,
        fill_what_was_empty,
        remove_the_only_one,
        move_to_the_next_dict,
        swap_two_submodules,
        reorder,
    ],
)
@pytest.mark.parametrize("buffers", [True, False])
def test_a_difference_is_noticed(*, change: Callable[[Any], None], buffers: bool) -> None:
    model = Built()
    entries = built.entries(model.modules(), buffers=buffers)
    assert entries.same()
    change(model)
    assert not entries.same()


def test_a_buffer_that_is_replaced_counts_only_where_it_is_asked_for() -> None:
    model: Any = Built()
    strict = built.entries(model.modules(), buffers=True)
    loose = built.entries(model.modules(), buffers=False)
    model.seen = torch.ones(1)
    assert loose.same() and not strict.same()
