"""Notice parameters of optimizers that move outside of the optimizer's step: clipped, noised, set by hand.

Until an optimizer begins, the state is that of the step's start only if its parameters have not moved. A
version counter proves that one has moved, not that none has: writes through `.data` are not counted. So a few
values of every parameter are compared as often as that costs next to nothing, and all bits in the first steps
and in every hundredth."""

from __future__ import annotations

import math
import time
from operator import attrgetter, methodcaller, ne
from typing import TYPE_CHECKING

from holdfast.clean.samples import ChosenValues, SeenValues
from holdfast.state import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

_SHARE = 0.004
"""The share of a step's time that taking samples and comparing them may take: if it takes more, some steps
are not compared."""

_LEARNED_FIRST, _LEARNED_EVERY = 3, 100
_version, _address = attrgetter("_version"), methodcaller("data_ptr")


class Owned:
    """The parameters of the tracked optimizers.

    They are watched from a step's start to its first optimizer's step; and from its last optimizer's step to
    its end, where that tail may be cut off. Elsewhere a step in which an optimizer has stepped counts only as
    a whole, so what moves in its tail decides nothing, and only the steps look that compare all bits."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.parameters: list[torch.Tensor] = []
        self._live: list[torch.Tensor] = []  # their memory: for a DTensor its local part
        self._samples = ChosenValues()
        self._versions: list[int] = []
        self._addresses: list[int] = []
        self._seen: SeenValues | None = None
        self._bits: list[int] | None = None
        self._count = 0
        self._every = 1
        self._begun_at = self._compared_s = 0.0
        self._learns_until = _LEARNED_FIRST
        self._learns = True  # this step compares all bits
        self._unseen_tail = False  # an optimizer has stepped in this step, and was not looked at after it
        self.tail_moves = False  # a parameter moved between the last optimizer's step and the step's end

    def arm(self, parameters: Sequence[torch.Tensor]) -> None:
        """Watch these parameters from the next step on."""
        self.parameters = list(parameters)
        self._live = [getattr(parameter, "_local_tensor", parameter) for parameter in self.parameters]
        self._choose_samples(list(map(_address, self._live)))
        self._versions, self._seen, self._bits = [], None, None

    def _choose_samples(self, addresses: list[int]) -> None:
        """Choose which values of each parameter to compare, in its present memory."""
        self._samples, self._addresses = ChosenValues(self._live), addresses

    def begin(self) -> None:
        """Begin a step."""
        self._count += 1
        self._learns = self._count <= self._learns_until or self._count % _LEARNED_EVERY == 0
        self._unseen_tail = False
        begun_at = self._clock()
        self._look(sampled=self._count % self._every == 0)
        now = self._clock()
        if self._seen is not None and self._bits is None and self._count > self._learns_until:
            self._pace(now - begun_at + self._compared_s, now - self._begun_at)
        self._begun_at = now

    def moved(self) -> list[torch.Tensor]:
        """The parameters seen to have moved since `begin` or `end_of_optimizers`."""
        live = self._live
        elsewhere = set(_different(list(map(_address, live)), self._addresses))
        found = elsewhere.union(_different(list(map(_version, live)), self._versions))
        if self._bits is not None:
            found.update(_different(list(map(digest.whole, live)), self._bits))
        elif self._seen is not None:
            begun_at = self._clock()
            found |= self._samples.changed(self._seen, elsewhere)
            self._compared_s = self._clock() - begun_at
        return [self.parameters[index] for index in sorted(found)]

    def versions(self) -> list[int]:
        """The count of noted writes to each parameter."""
        return list(map(_version, self._live))

    def learn_tails(self) -> None:
        """Compare all bits in the next steps again: from now on something depends on what moves after the
        last optimizer's step."""
        self._learns_until = self._count + _LEARNED_FIRST

    def end_of_optimizers(self, *, decides: bool) -> None:
        """Note the parameters after an optimizer's step, which may be the last one of the step.

        `decides`: something depends on what moves after it. If not, only the steps look in which all bits are
        compared."""
        self._unseen_tail = not (decides or self._learns)
        if not self._unseen_tail:
            self._look(sampled=False)

    def end(self, *, optimized: bool) -> list[torch.Tensor]:
        """Complete the step. Returns the parameters seen to have moved outside of an optimizer's step.

        `optimized`: an optimizer has stepped in it."""
        if self._unseen_tail:
            return []
        found = self.moved() if self._versions else []
        self.tail_moves = self.tail_moves or (optimized and bool(found))
        return found

    def _look(self, *, sampled: bool) -> None:
        """Record the parameters as they are now. `sampled`: also the chosen values. Now and then all bits."""
        self._versions = list(map(_version, self._live))
        addresses = list(map(_address, self._live))
        if addresses != self._addresses:
            self._choose_samples(addresses)
        self._bits = list(map(digest.whole, self._live)) if self._learns else None
        self._seen = self._samples.take() if sampled and not self._learns else None

    def _pace(self, spent_s: float, step_s: float) -> None:
        """Choose how often to compare, so that it takes its share of the time and no more."""
        self._every = max(1, math.ceil(spent_s / max(step_s * _SHARE, 1e-9)))


def _different(now: Sequence[int], before: Sequence[int]) -> Iterator[int]:
    """The places at which two lists of the same length differ."""
    if now == before:
        return iter(())
    return (index for index, differs in enumerate(map(ne, now, before)) if differs)
