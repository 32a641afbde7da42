"""Put back what is small: the state of small objects, and the options of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import tracked as state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ATOMS = frozenset((float, int, bool, str, type(None)))
"""Types that need no copy."""
Options = list[list[dict[str, Any]]]
"""For each optimizer and group, a copy of all but the parameters."""


def options_of(optimizers: Sequence[torch.optim.Optimizer]) -> Options:
    """The options now."""
    return [[_copied(group) for group in optimizer.param_groups] for optimizer in optimizers]


def put_options(optimizers: Sequence[torch.optim.Optimizer], kept: Options) -> None:
    """Give the groups these options. They must be the groups of then."""
    for optimizer, options in zip(optimizers, kept, strict=True):
        for group, values in zip(optimizer.param_groups, options, strict=True):
            group.update(copy_plain(values))


def put_small(things: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Give these objects their states."""
    for name, value in kept.items():
        state.apply(things[name], copy_plain(value))


def copy_plain(value: Any) -> Any:
    """A copy of a small tree that shares no container and no tensor with it."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, torch.Tensor):
        return state.made_like(value, value.detach().clone())
    if isinstance(value, dict):
        copied = {key: copy_plain(item) for key, item in value.items()}
        return copied if type(value) is dict else type(value)(copied)
    if isinstance(value, list):
        return [copy_plain(item) for item in value]
    return tuple(copy_plain(item) for item in value) if type(value) is tuple else value


def _copied(group: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value if type(value) in _ATOMS else copy_plain(value)
        for key, value in group.items()
        if key != "params"
    }
