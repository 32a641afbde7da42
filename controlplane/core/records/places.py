"""Define a place for a rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one rank."""

    node: str
    local_rank: int
