"""Find what a stream keeps and its `state_dict` leaves out: random generators, and buffers of samples.

A process that takes a dead rank's place gives its stream the state, and would draw other numbers, or miss the
samples that wait in a shuffle buffer. Whether a state leaves something out is tried: with the generator in
another state, or the buffer without its last item, `state_dict` gives the same."""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections import deque
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from holdfast.clean.looks.reach import reached
from holdfast.data.own_generators import OwnGenerators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ITEMS_MAX = 1 << 14
"""Buffers with more items are not looked at."""


class _Looks(ABC):
    """Looks at the first draw, and after twice as many each time, at what a draw moves."""

    def __init__(self) -> None:
        self._draws = 0
        self._told: set[str] = set()
        self._due = False

    def before(self, source: Any, samples: Any) -> None:
        """A draw begins. `samples`: the iterator that is drawn from."""
        self._draws += 1
        self._due = not self._draws & (self._draws - 1)
        if self._due:
            running = inspect.getgeneratorlocals(samples) if isinstance(samples, GeneratorType) else {}
            self._look(getattr(source, "dataset", source), running)

    def after(self, state: Callable[[], Any]) -> list[str]:
        """A draw has ended, with a stream whose state `state` gives now. Returns those not named before."""
        found = []
        for name, is_left_out in self._moved() if self._due else ():
            if name not in self._told and is_left_out(state):
                self._told.add(name)
                found.append(name)
        return found

    @abstractmethod
    def _look(self, stream: Any, running: dict[str, Any]) -> None:
        """Note what there is. `running`: the variables of the stream's `__iter__`."""

    @abstractmethod
    def _moved(self) -> Iterator[tuple[str, Callable[[Callable[[], Any]], bool]]]:
        """What the draw has moved, by name, and whether a state leaves it out."""


class LeftOut(_Looks):
    """Finds the generators that a stream draws from and its `state_dict` leaves out."""

    def _look(self, stream: Any, running: dict[str, Any]) -> None:
        self._own = OwnGenerators(stream, running)
        self._own.look()
        self._before = self._own.states()

    def _moved(self) -> Iterator[tuple[str, Callable[[Callable[[], Any]], bool]]]:
        for name, now in self._own.states().items():
            if now != self._before[name]:
                shown = re.sub(r"^\[\d+\]", "", name).strip(".[]'")
                yield shown, functools.partial(self._own.is_left_out, name)


class Buffers(_Looks):
    """Finds the lists and deques that a stream holds, or that are variables of its `__iter__`, and its
    `state_dict` leaves out."""

    def _look(self, stream: Any, running: dict[str, Any]) -> None:
        self._found = dict(_buffers({_STREAM: stream, **running}))
        self._before = {name: list(map(id, each)) for name, each in self._found.items()}

    def _moved(self) -> Iterator[tuple[str, Callable[[Callable[[], Any]], bool]]]:
        found, self._found = self._found, {}
        for name, each in found.items():
            if list(map(id, each)) != self._before[name]:
                yield name.removeprefix(f"{_STREAM}."), functools.partial(_is_out, each)


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
