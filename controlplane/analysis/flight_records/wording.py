"""Name ranks and places in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.records import FlightEntry


def ranked(ranks: Sequence[int]) -> str:
    """Name a few ranks, count many: `rank 3`, `ranks 1, 2`, `255 ranks (0 to 255)`."""
    known = sorted(ranks)
    if len(known) == 1:
        return f"rank {known[0]}"
    if len(known) > policy.NAMED_MAX:
        return f"{len(known)} ranks ({known[0]} to {known[-1]})"
    return f"ranks {', '.join(map(str, known))}"


def at(entry: FlightEntry) -> str:
    """Where in the script an operation was called; "" where torch did not record it."""
    return f" at {entry.source}" if entry.source else ""
