"""Define a place for a rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one rank: local rank `local_rank` on `node`. It names no member yet."""

    node: str
    local_rank: int
