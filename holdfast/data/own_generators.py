"""Seed the random generators that a data set keeps for itself, in the process that fetches from it.

`self.rng = numpy.random.default_rng()` in a data set, or in a transform of another package, is not seeded
with the global generators: what it draws would depend on what its worker has fetched before, and so on how
many workers there are and when they were begun anew. So the generators that a data set can reach are found,
and seeded like the global ones, each with its name: in its attributes and those of its transforms, in what
functions close over, and in variables of modules that its methods use.

A stream that knows its position is not seeded so: replicas may draw the same on purpose, to deal shards out
among themselves. There a generator belongs into the state, and one that is left out is named."""

from __future__ import annotations

import os
import zlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

from holdfast.clean.looks.reach import reached
from holdfast.state import randomness

if TYPE_CHECKING:
    from collections.abc import Callable


class OwnGenerators:
    """The generators that these objects can reach."""

    def __init__(self, *holders: Any) -> None:
        self._holders = holders
        self._found: dict[str, Any] = {}
        self._seeded, self._process = 0, os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        """A worker that is not forked looks for its own."""
        return {"_holders": self._holders, "_found": {}, "_seeded": 0, "_process": 0}

    def known(self) -> list[Any]:
        """All that are known. The first call looks for them."""
        if not self._found and not self._seeded:
            self.look()
        return list(self._found.values())

    def states(self) -> dict[str, Any]:
        """The state of each, by name."""
        return {name: randomness.bits_of(each) for name, each in self._found.items()}

    def is_left_out(self, name: str, state: Callable[[], Any]) -> bool:
        """Whether what `state` gives is the same when this one is in another state."""
        generator, given = self._found[name], state()
        kept = randomness.state_of(generator)
        try:
            randomness.seed(generator, _ELSEWHERE)
            return bool(state() == given)
        finally:
            randomness.set_state(generator, kept)

    def seed(self, value: int) -> None:
        """Seed all that are known."""
        self.known()
        if self._process != os.getpid():  # a worker was forked: what follows is its first sample
            self._seeded, self._process = 0, os.getpid()
        self._seeded += 1
        for name, generator in self._found.items():
            randomness.seed(generator, randomness.mix(value ^ zlib.crc32(name.encode())) >> 1)

    def grown(self) -> bool:
        """Whether there are new ones since the last look: some make theirs when the first sample is fetched.

        It looks after the first sample, and after twice as many each time."""
        if self._seeded & (self._seeded - 1):
            return False
        before = list(map(id, self._found.values()))
        self.look()
        return before != list(map(id, self._found.values()))

    def look(self) -> None:
        """Look for them again."""
        self._found = {}
        global_ones = set(map(id, randomness.seeded()))
        kinds: set[type[Any]] = set()
        for name, value in reached((self._holders,), global_ones, foreign=True):
            kind = type(value)
            self._add(name, value)
            if isinstance(value, FunctionType):
                self._add_of_function(value)
            elif kind not in kinds:
                kinds.add(kind)
                self._add_of_class(kind)

    def _add(self, name: str, value: Any) -> None:
        if randomness.is_generator(value):
            if not any(value is each for each in (*self._found.values(), *randomness.seeded())):
                self._found[name] = value

    def _add_of_class(self, kind: type[Any]) -> None:
        for base in kind.__mro__:
            for name, value in list(vars(base).items()):
                self._add(f"{base.__name__}.{name}", value)
                if isinstance(value, FunctionType):
                    self._add_of_function(value)

    def _add_of_function(self, function: FunctionType) -> None:
        for name in function.__code__.co_names:
            self._add(name, function.__globals__.get(name))


_ELSEWHERE = 0x5EED
"""The seed of a generator whose part in a state is looked for."""
