"""Compare what need not be equal: only where ranks have agreed is it damage that they differ later.

A rank claims keys, each with a number. Where the ranks that claim a key have never given the same number,
the script has its own way, and nobody is accused. A difference that stays after it was told is the script's,
too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.agreement import odd_replicas
from holdfast.state import sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.agreement.odd_replicas import Claims

NUMBERS = 3
"""Numbers of a claim: key, number (as an int64), and what its rank knows of it (the bits below)."""
_WERE_EQUAL, _SHOWS = 1, 2


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison gave, the same on all ranks. `damaged`: keys whose ranks have agreed, and differ now;
    `apart`: those whose ranks differ and have not agreed."""

    damaged: set[int]
    apart: set[int]
    found: Claims


class OnceEqual:
    """What one rank knows of the keys that were compared in its process."""

    def __init__(self) -> None:
        self._equal: set[int] = set()  # all have given the same
        self.apart: set[int] = set()  # they never have, or no longer do

    def row(self, claims: Iterable[tuple[int, int, bool]], columns: int) -> list[int]:
        """The row for these claims, of so many numbers: key, number, and whether it shows anything if this
        number is equal on all ranks."""
        found: list[int] = []
        for key, number, shows in claims:
            found += [key, sums.signed(number), _WERE_EQUAL * (key in self._equal) + _SHOWS * shows]
        return [*found, *[0] * columns][:columns]

    def learn(self, rows: Sequence[Sequence[int]]) -> Compared:
        """Take note of every rank's row."""
        bits: dict[int, int] = {}
        for row in rows:
            for at in range(0, len(row), NUMBERS):
                bits[row[at]] = bits.get(row[at], 0) | row[at + 2]
        found = odd_replicas.claims([_pairs(row) for row in rows])
        differing = odd_replicas.differing(found)
        damaged = {key for key in differing if bits[key] & _WERE_EQUAL}
        agreed = found.keys() - differing - odd_replicas.alone(found)
        proven = {key for key in agreed if bits[key] & _SHOWS}
        self._equal = (self._equal | proven) - damaged
        apart = differing - damaged
        self.apart = (self.apart - proven) | apart
        return Compared(damaged, apart, found)


def _pairs(row: Sequence[int]) -> list[int]:
    """A row without the bits."""
    return [number for at in range(0, len(row), NUMBERS) for number in row[at : at + 2]]
