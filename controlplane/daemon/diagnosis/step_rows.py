"""Add up what agents report about steps: one row per rank of a window. Pure; imported when there is a window
to judge, since it loads numpy.

A report is columns already, with a place for each rank of its node. The reports of a window are laid end to
end, column by column; each place there is an entry. So 10,000 reports cost some fifty operations on arrays.
What a rank has done is the sum of its entries since its process entered its newest generation."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.analysis.live.readings import NUMBERS, UNKNOWN, RankColumns, RankWork
from controlplane.analysis.live.table import COUNTED, SUMS
from holdfast.coordinates import Coordinates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from controlplane.analysis.live.readings import SeatRow
    from controlplane.analysis.robust import Floats
    from controlplane.core.records.diagnosis import StepTimes
    from controlplane.core.records.model import Generation

    Ints = NDArray[np.int64]

NAMES = {"last_step": "last_steps", "generation": "generations", "cpu_limit": "cpu_limits"}
"""Numbers of a row that a report calls otherwise."""
UNTOLD = {"device_used": float(UNKNOWN), "cpu_limit": float(UNKNOWN)}
"""What counts for an agent that does not report it; 0 for all other numbers."""
COUNTS = (*COUNTED, "cpu_limits")
"""The kernel's counts: an agent reports all of them, or none counts."""


class Seating:
    """Who is which rank of a generation, and where; kept while that stays so."""

    def __init__(
        self, generation: Generation, domains: Mapping[str, str], *, tp: int, pp: int, cp: int
    ) -> None:
        self.generation, self.domains, self._sizes = generation, domains, (tp, pp, cp)
        self._told: tuple[Any, tuple[RankWork, ...]] = (None, ())
        self._reporting: tuple[Ints | None, Sequence[SeatRow]] = (None, ())

    @cached_property
    def _rows(self) -> list[SeatRow]:
        """By rank."""
        world, domains = len(self.generation.seats), self.domains
        return [
            (
                *(seat.rank, seat.member, seat.node, seat.local_rank, domains.get(seat.node, "")),
                *Coordinates(seat.rank, world, *self._sizes).place,
            )
            for seat in self.generation.seats
        ]

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each member among the seats."""
        return {seat.member: place for place, seat in enumerate(self.generation.seats)}

    def rows(self, places: Ints) -> Sequence[SeatRow]:
        """The rows of these places; the very same ones as at the last call where the places are the same."""
        known, rows = self._reporting
        if known is None or not np.array_equal(known, places):
            rows = [self._rows[place] for place in places.tolist()]
            self._reporting = places, rows
        return rows

    def works(self, told: tuple[Any, ...]) -> tuple[RankWork, ...]:
        """The records made of columns of ranks, token_flops, peak_flops and notes (None: not told)."""
        if self._told[0] != told:
            made = tuple(RankWork(*row) for row in zip(*told, strict=True) if row[-1] is not None)
            self._told = told, made
        return self._told[1]


class StepRows:
    """The reports of one window, about the ranks of one generation."""

    def __init__(self, reports: Sequence[StepTimes], seating: Seating) -> None:
        """`reports`: those of an agent in the order in which they were made."""
        self._reports, self._seating = reports, seating
        self._sizes = [len(each.members) for each in reports]
        self._count, seats = sum(self._sizes), len(seating.generation.seats)
        members = chain.from_iterable(each.members for each in reports)
        where = map(seating.places.get, members, repeat(-1))
        self._place = np.fromiter(where, np.int64, self._count)  # of each entry; -1: of no rank
        self._entries = np.flatnonzero(self._place >= 0)
        self._newest = _latest(self._entries, self._place, seats)
        self._seen = np.flatnonzero(self._newest >= 0)  # places with a row
        self._from = self._newest[self._seen]
        self._counted = list(map(all, map(attrgetter(*COUNTS), reports)))
        self._generations = self._column("generations", 0)

    def columns(self) -> RankColumns:
        """A row for each rank that has reported."""
        seats, numbers = self._seating.rows(self._seen), np.empty((len(NUMBERS), len(self._seen)))
        adding = self._adding()
        for at, name in enumerate(NUMBERS):
            column = self._number(name)
            if adding is None or name not in SUMS:
                numbers[at] = column[self._from]
            else:
                sums = np.bincount(self._place[adding], column[adding], len(self._newest))
                numbers[at] = sums[self._seen]
        return RankColumns(seats, numbers.T)

    def works(self) -> tuple[RankWork, ...]:
        """What these ranks say of their work and their devices."""
        if not any(each.compute_notes for each in self._reports):
            return ()
        notes = list(self._values("compute_notes", None))
        which = self._from.tolist()
        flops = (self._column(name, 0.0)[self._from].tolist() for name in ("token_flops", "peak_flops"))
        return self._seating.works((self._seen.tolist(), *flops, [notes[entry] for entry in which]))

    def ends(self) -> frozenset[tuple[str, int]] | None:
        """What the ranks that have reported in this generation say of their end; None: none has."""
        current = self._from[self._generations[self._from] == self._seating.generation.number]
        if not len(current):
            return None
        kinds, steps = list(self._values("end_kinds", None)), list(self._values("end_steps", 0))
        return frozenset((kinds[at], steps[at]) for at in current.tolist() if kinds[at] is not None)

    def _adding(self) -> Ints | None:
        """The entries that add up; None: each rank has one."""
        if len(self._entries) == len(self._seen):
            return None
        place = self._place[self._entries]
        former = self._generations[self._entries] != self._generations[self._newest[place]]
        before = _latest(self._entries[former], self._place, len(self._newest))
        return self._entries[self._entries > before[place]]

    def _number(self, name: str) -> Floats:
        """A number of a row, of each entry."""
        column = self._column(NAMES.get(name, name), UNTOLD.get(name, 0.0))
        if name == "device_used":
            return np.where((column >= 0.0) & (column <= 1.0), column, float(UNKNOWN))
        return column

    def _column(self, name: str, untold: float) -> Floats:
        return np.fromiter(self._values(name, untold), np.float64, self._count)

    def _values(self, name: str, untold: Any) -> Iterator[Any]:
        """A column of the reports, end to end."""
        columns = list(map(attrgetter(name), self._reports))
        if name in COUNTS and not all(self._counted):
            both = zip(columns, self._counted, strict=True)
            columns = [found if counted else () for found, counted in both]
        if not all(columns):
            columns = [found or (untold,) * size for found, size in zip(columns, self._sizes, strict=True)]
        return chain.from_iterable(columns)


def _latest(entries: Ints, place: Ints, places: int) -> Ints:
    """The last of these entries at each place; -1: none."""
    found = np.full(places, -1, dtype=np.int64)
    np.maximum.at(found, place[entries], entries)
    return found
