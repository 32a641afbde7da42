"""Find what a stream keeps and its `state_dict` leaves out: random generators, and buffers of samples.

A process that takes a dead rank's place gives its stream the state, and would draw other numbers, or miss the
samples that wait in a shuffle buffer. Whether a state leaves something out is tried: with the generator in
another state, or the buffer without its last item, `state_dict` gives the same."""

from __future__ import annotations

import inspect
import re
from collections import deque
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from holdfast.clean.reach import reached
from holdfast.data.own_generators import OwnGenerators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ITEMS_MAX = 1 << 14
"""Buffers with more items are not looked at."""


class LeftOut:
    """Finds the generators that a stream draws from and its `state_dict` leaves out. It looks at the first
    draw, and after twice as many each time."""

    def __init__(self) -> None:
        self._draws = 0
        self._told: set[str] = set()
        self._own: OwnGenerators | None = None
        self._before: dict[str, Any] = {}

    def before(self, source: Any, samples: Any) -> None:
        """A draw begins. `samples`: the iterator that is drawn from."""
        self._draws += 1
        self._own = None
        if self._draws & (self._draws - 1):
            return
        running = inspect.getgeneratorlocals(samples) if isinstance(samples, GeneratorType) else {}
        own = self._own = OwnGenerators(getattr(source, "dataset", source), running)
        own.look()
        self._before = own.states()

    def after(self, state: Callable[[], Any]) -> list[str]:
        """A draw has ended, with a stream whose state `state` gives now. Returns those not named before."""
        own, found = self._own, list[str]()
        if own is None:
            return found
        for name, now in own.states().items():
            shown = re.sub(r"^\[\d+\]", "", name).strip(".[]'")
            if now != self._before[name] and shown not in self._told and own.is_left_out(name, state):
                self._told.add(shown)
                found.append(shown)
        return found


class Buffers:
    """The lists and deques that a stream holds, or that are variables of its `__iter__`. It looks when
    `LeftOut` does."""

    def __init__(self) -> None:
        self._draws = 0
        self._told: set[str] = set()
        self._found: dict[str, Any] = {}
        self._before: dict[str, list[int]] = {}

    def before(self, source: Any, samples: Any) -> None:
        """A draw begins. `samples`: the iterator that is drawn from."""
        self._draws += 1
        self._found = {}
        if self._draws & (self._draws - 1) == 0:
            running = inspect.getgeneratorlocals(samples) if isinstance(samples, GeneratorType) else {}
            self._found = dict(_buffers({_STREAM: getattr(source, "dataset", source), **running}))
        self._before = {name: list(map(id, each)) for name, each in self._found.items()}

    def after(self, state: Callable[[], Any]) -> list[str]:
        """A draw has ended, with a stream whose state `state` gives now. Returns those not named before."""
        found = []
        for name, each in self._found.items():
            shown = name.removeprefix(f"{_STREAM}.")
            if shown not in self._told and list(map(id, each)) != self._before[name] and _is_out(each, state):
                self._told.add(shown)
                found.append(shown)
        self._found = {}
        return found


_STREAM = "the stream"


def _buffers(held: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in reached((), set(), held):
        if type(value) in (list, deque) and "[" not in name and len(value) <= _ITEMS_MAX:
            yield name, value


def _is_out(buffer: Any, state: Callable[[], Any]) -> bool:
    """Whether what `state` gives is the same when this one has an item less."""
    if not buffer:
        return False
    given, last = state(), buffer.pop()
    try:
        return bool(state() == given)
    finally:
        buffer.append(last)
