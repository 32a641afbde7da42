"""Put back what is small: the state of small objects, and the options of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from holdfast.state import tracked as state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ATOMS = frozenset((float, int, bool, str, type(None)))
"""Types that need no copy."""


class Options(NamedTuple):
    """For each optimizer and group, a copy of all but the parameters. `tensors`: those that were copied, in
    their order: a script may hold a rate that is a tensor, and fill it."""

    values: list[list[dict[str, Any]]]
    tensors: list[torch.Tensor]


def options_of(optimizers: Sequence[torch.optim.Optimizer]) -> Options:
    """The options now."""
    tensors: list[torch.Tensor] = []

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        tensors.append(tensor)
        return _clone(tensor)

    groups = [[_copied(group, copied) for group in optimizer.param_groups] for optimizer in optimizers]
    return Options(groups, tensors)


@torch.no_grad()
def put_options(optimizers: Sequence[torch.optim.Optimizer], kept: Options) -> None:
    """Give the groups these options, a tensor as the one that it was. They must be the groups of then."""
    tensors = iter(kept.tensors)
    for optimizer, options in zip(optimizers, kept.values, strict=True):
        for group, values in zip(optimizer.param_groups, options, strict=True):
            group.update(copy_plain(values, lambda value: next(tensors).copy_(value)))


def put_small(things: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Give these objects their states."""
    for name, value in kept.items():
        state.apply(things[name], copy_plain(value))


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    return state.made_like(tensor, tensor.detach().clone())


def copy_plain(value: Any, leaf: Callable[[torch.Tensor], torch.Tensor] = _clone) -> Any:
    """A copy of a small tree that shares no container with it. `leaf`: gives what takes a tensor's place."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, torch.Tensor):
        return leaf(value)
    if isinstance(value, dict):
        copied = {key: copy_plain(item, leaf) for key, item in value.items()}
        return copied if type(value) is dict else type(value)(copied)
    if isinstance(value, list):
        return [copy_plain(item, leaf) for item in value]
    return tuple(copy_plain(item, leaf) for item in value) if type(value) is tuple else value


def _copied(group: dict[str, Any], leaf: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    return {
        key: value if type(value) in _ATOMS else copy_plain(value, leaf)
        for key, value in group.items()
        if key != "params"
    }
