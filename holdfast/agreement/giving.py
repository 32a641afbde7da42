"""Give rank 0's objects to all ranks at the start, for `track(from_rank_0=True)`.

They are compared with the rest of the state only after that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agreement.proof import group
from holdfast.groups import transfer
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.snapshots import plan
from holdfast.state import digest
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from holdfast.rank_state import RankState


def give(state: RankState, names: list[str], columns: int) -> None:
    """Send each of these objects from the first rank that holds it to the other ranks of the same key.

    All ranks call it, with `columns` as the largest number of names on any rank. Raises RestoreError if
    another rank's object does not fit."""
    device = carrier(state.backend, state.device)
    mine = {}
    for name in names:
        alone = _alone(state.tracked, name)
        found, header = plan.current(None, alone)
        mine[digest.number(group(alone, found.parts[0]).encode())] = alone, found, header
    row = [number for key, (_, _, header) in mine.items() for number in (key, len(header))]
    rows = gather_numbers([*row, *[0] * (2 * columns - len(row))], device, state.world_size)
    sizes = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
    for key in sorted({key for held in sizes for key in held if key}):
        source, *takers = [rank for rank, held in enumerate(sizes) if key in held]
        route = transfer.Route(source, tuple(takers), state.rank, device)
        if not takers or not route.concerns_me:
            continue
        alone, found, header = mine[key]
        if state.rank == source:
            transfer.give(route, found.tensors, header)
        else:
            transfer.take(route, sizes[source][key], alone)


def _alone(tracked: TrackedState, name: str) -> TrackedState:
    """A TrackedState that holds only this object."""
    alone = TrackedState()
    alone.objects, alone.claims = {name: tracked.objects[name]}, {name: tracked.claims[name]}
    alone.at = tracked.at
    return alone
