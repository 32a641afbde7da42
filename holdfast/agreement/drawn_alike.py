"""Compare what ranks draw by: the order of samples, what was drawn of it ahead, and the seed of the steps.

Generators are seeded anew in each step, by (seed, step, tensor-parallel group), so their damage does not
outlast a step. Within a step each rank may draw what it likes (rank 0 alone samples a text to log), so what
generators hold after it need not be equal anywhere. What can differ for longer is what they are seeded by,
and what the shares of the samples are cut from. Shares are disjoint and complete if the orders are the same,
for each is cut at the rank's own place, and what is kept of it ahead is as it was drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from holdfast.agreement.differing import listed
from holdfast.agreement.once_equal import NUMBERS, Compared, OnceEqual
from holdfast.state import digest, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.agreement.differing import Details
    from holdfast.rank_state import RankState

STREAMS_MAX = 4
"""Streams of samples that are compared: those that were first in use."""
CLAIMS_MAX = STREAMS_MAX + 2
ORDER = "the order of samples"
_SHOWN = 4
"""Orders of one stream that are shown."""
_AS_DRAWN, _CHANGED = "as drawn", "changed"


class Order(Protocol):
    """The order of a stream of samples."""

    def from_here(self, batch: int) -> str:
        """What decides the samples from this batch on, in words."""


class DrawnAhead(Protocol):
    """Samples that were drawn ahead."""

    def intact(self) -> bool:
        """Whether they are as they are drawn now."""


Streams = Mapping[int, tuple[Order, DrawnAhead | None]]
"""By seed: the newest order, and the samples that were drawn ahead."""


class DrawnAlike:
    """One rank's part. `streams` gives the streams of samples in use."""

    def __init__(self, state: RankState, streams: Callable[[], Streams]) -> None:
        self._state, self._streams = state, streams
        self._once = OnceEqual()
        self._claimed: dict[int, tuple[str, str]] = {}  # by key: name, and what is claimed in words
        self.columns = CLAIMS_MAX * NUMBERS

    def row(self, *, thorough: bool) -> list[int]:
        """This rank's numbers after a step. `thorough`: not only of orders."""
        self._claimed = {
            digest.number(repr(("drawn", name, *place)).encode()): (name, words)
            for name, words, place in self._claims(thorough=thorough)
        }
        numbers = [(key, sums.text(words.encode()), True) for key, (_, words) in self._claimed.items()]
        return self._once.row(numbers, self.columns)

    def _claims(self, *, thorough: bool) -> list[tuple[str, str, tuple[object, ...]]]:
        """Name, words, and what else decides which ranks claim the same."""
        state = self._state
        found: list[tuple[str, str, tuple[object, ...]]] = []
        streams = list(self._streams().items())[:STREAMS_MAX]
        for seed, (order, _) in streams:
            found.append((order_name(seed), order.from_here(state.data_step), ()))
        if not thorough:
            return found
        if any(ahead is not None for _, (_, ahead) in streams):
            intact = all(ahead is None or ahead.intact() for _, (_, ahead) in streams)
            found.append(("the samples drawn ahead", _AS_DRAWN if intact else _CHANGED, ()))
        loop = (state.functions.called, state.entry.last_step)
        found.append(("the seed of the steps", f"{state.entry.seed}", loop))
        return found

    def learn(self, rows: Sequence[Sequence[int]]) -> Compared:
        """Take note of every rank's numbers."""
        return self._once.learn(rows)

    def details(self, keys: set[int]) -> Details:
        """What this rank claims of these keys, by name."""
        found: Mapping[int, tuple[str, str]] = self._claimed
        return {str(key): {name: ["", words]} for key, (name, words) in found.items() if key in keys}


def order_name(seed: int) -> str:
    """What the order of a stream is called."""
    return f"{ORDER} (seed {seed})"


def described(every: Sequence[Details]) -> str:
    """The orders that ranks have of the same stream, in words; "": none differ. `every`: the details of each
    rank."""
    found: dict[str, dict[str, list[int]]] = {}
    for rank, held in enumerate(every):
        for name, (_, words) in (pair for things in held.values() for pair in things.items()):
            if name.startswith(ORDER):
                found.setdefault(name, {}).setdefault(words, []).append(rank)
    return "; ".join(
        f"{name}: " + "; ".join(f"{listed(ranks)}: {words}" for words, ranks in list(orders.items())[:_SHOWN])
        for name, orders in found.items()
        if len(orders) > 1
    )
