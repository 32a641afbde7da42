"""Check that each seed stands for one data set within a generation: a seed is the name of its stream."""

from __future__ import annotations

import weakref
from typing import Any

from holdfast.data import contract
from holdfast.errors import SessionError


class SeedClaims:
    """The data sets that seeds stand for in one generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.maps: dict[int, int] = {}  # n of the map data sets, by seed
        self._loaders: dict[int, weakref.ref[Any]] = {}  # the newest loader of each iterable stream, by seed
        self._replaced: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders that a newer one has replaced
        self._now: dict[int, weakref.ref[Any]] = {}  # the loaders of this step, by seed
        # (n, global_batch, seed) asked for in this step, by seed.
        self._sizes: dict[int, tuple[int, int, int]] = {}

    def begin(self) -> None:
        """Begin a step."""
        self._now.clear()
        self._sizes.clear()

    @property
    def asked(self) -> frozenset[int]:
        """The seeds of the map data sets that the step has taken samples of."""
        return frozenset(self._sizes)

    @property
    def iterates(self) -> bool:
        """Whether the step has taken samples of an iterable data set."""
        return bool(self._now)

    def once(self, sizes: tuple[int, int, int], caller: str) -> None:
        """Note that the step takes samples of these sizes (n, global_batch, seed).

        Raises SessionError if it has taken samples of the same seed with other sizes: they would be the same
        samples."""
        before = self._sizes.setdefault(sizes[2], sizes)
        if before != sizes:
            raise SessionError(
                f"{caller}({contract.shown(sizes)}): seed {sizes[2]} is used for {contract.shown(before)} "
                "already: give each data set a seed of its own"
            )

    def iterable(self, seed: int, loader: Any) -> None:
        """Note that this loader consumes an iterable stream in the present step.

        A new loader may continue the stream of the one before. Raises SessionError if the stream belongs to
        another."""
        if seed in self.maps:
            raise SessionError(_shared(seed, "a map data set and for an iterable one"))
        newest, now = self._loaders.get(seed), self._now.get(seed)
        if loader in self._replaced or (now is not None and now() is not loader):
            raise SessionError(_shared(seed, "two iterable data sets"))
        before = newest() if newest is not None else None
        if before is not None and before is not loader:
            self._replaced.add(before)
        self._loaders[seed] = self._now[seed] = weakref.ref(loader)

    def map(self, seed: int) -> None:
        """Note that samples of a map data set are asked for. Raises SessionError if the seed is another's."""
        if seed in self._loaders:
            raise SessionError(_shared(seed, "a map data set and for an iterable one"))


def _shared(seed: int, two: str) -> str:
    return (
        f"seed {seed} is used for {two}, and each would continue at the other's position: give each data "
        "set a seed of its own (seed=1, seed=2, ...)"
    )
