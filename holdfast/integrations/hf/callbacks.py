"""Keep callbacks with a state of their own, such as an average of the weights, and name those that lose it.

A callback with `state_dict` and `load_state_dict` is tracked. What is tracked belongs to a step, and may not
change in the step's tail (`tail.py`)."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from holdfast.integrations.hf import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKS = 3
"""In so many first steps, a callback that would lose a copy of the weights is refused; later it is told."""
_DEPTH, _LENGTH = 3, 10_000
"""How deep, and into how long collections, a callback is looked at."""
_OTHERS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, type)
log = logging.getLogger("holdfast.sdk")


class CallbackStates:
    """The states of a handler's callbacks."""

    def __init__(self, handler: Any, trainer: Any) -> None:
        self._handler, self._trainer = handler, trainer
        self._looks = 0
        self._before: dict[int, str] = {}
        self._told: set[int] = set()

    def kept(self) -> dict[str, Any]:
        """The callbacks that are tracked, by the names to track them under."""
        every = enumerate(self._handler.callbacks)
        return {f"{type(each).__name__}_{index}": each for index, each in every if is_kept(each)}

    def look(self, event: str) -> None:
        """Raise SessionError for a callback whose copy of the weights changes and is not tracked; if it does
        so later than in the first steps, warn of it once."""
        self._looks += event == "on_step_end"
        if event != "on_log" and not (event == "on_step_end" and self._looks <= _LOOKS):
            return
        for each in self._handler.callbacks:
            if is_kept(each) or id(each) in self._told:
                continue
            mark = _mark(copies(each, self._trainer))
            if mark and self._before.get(id(each), "" if self._looks > _LOOKS else mark) != mark:
                self._name(each)
            self._before[id(each)] = mark

    def _name(self, callback: Any) -> None:
        name = f"the callback {type(callback).__name__}, which changes a copy of the weights,"
        why = (
            "a process that takes a dead rank's place has another one: give the callback state_dict and "
            "load_state_dict, and change the copy in on_optimizer_step"
        )
        if self._looks <= _LOOKS:
            refusals.refuse(name, why)
        self._told.add(id(callback))
        log.warning("Trainer under Holdfast: %s is not kept: %s", name, why)


def is_kept(callback: Any) -> bool:
    """Whether a callback gives and takes a state of its own."""
    return all(callable(getattr(callback, name, None)) for name in ("state_dict", "load_state_dict"))


def copies(callback: Any, trainer: Any) -> list[torch.Tensor]:
    """The tensors that a callback holds besides the model's, if there is one for each weight that is trained;
    else []."""
    own = {each.data_ptr() for each in (*trainer.model.parameters(), *trainer.model.buffers())}
    seen = {id(trainer), id(trainer.model)}
    found = [each for each in _held(vars(callback), seen, _DEPTH) if each.data_ptr() not in own]
    wanted = Counter(each.shape for each in trainer.model.parameters() if each.requires_grad)
    return [] if wanted - Counter(each.shape for each in found) else found


def _held(thing: Any, seen: set[int], depth: int) -> Iterator[torch.Tensor]:
    """The tensors of a thing and of what it holds."""
    if id(thing) in seen or isinstance(thing, _OTHERS):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
        return
    if isinstance(thing, torch.nn.Module):
        yield from thing.parameters()
        yield from thing.buffers()
        return
    if not isinstance(thing, dict | list | tuple):
        thing = getattr(thing, "__dict__", {}) if depth else {}
        depth -= 1
    for each in () if len(thing) > _LENGTH else list(thing.values() if isinstance(thing, dict) else thing):
        yield from _held(each, seen, depth)


def _mark(tensors: list[torch.Tensor]) -> str:
    """What differs, in practice, when one of these has changed: where each tensor is, and its first number
    (no version: writes to `.data` are not counted). "" if there are none."""
    filled = [each for each in tensors if each.numel()]
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for each in filled:
        by_device.setdefault(each.device, []).append(each.detach()[(0,) * each.dim()].double())
    numbers = [torch.stack(found).tolist() for found in by_device.values()]
    return repr(([each.data_ptr() for each in filled], numbers)) if tensors else ""
