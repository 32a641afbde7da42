"""Say how much memory the fullest rank has left at its peak. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from controlplane.analysis.live.table import RankTable


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """The memory of the rank that has the smallest share of it left at its peak."""

    rank: int
    node: str
    peak_bytes: float
    limit_bytes: float
    samples: float  # of a step on this rank; 0: not known


def memory_room(table: RankTable) -> MemoryRoom | None:
    """The fullest rank of a window; None: no rank knows its limit and its peak."""
    values = table.values
    peak, limit = values["memory_peak_bytes"], values["memory_limit_bytes"]
    with np.errstate(all="ignore"):
        share = np.where((limit > 0) & (peak > 0), peak / limit, np.nan)
    if np.isnan(share).all():
        return None
    rank = int(np.nanargmax(share))
    samples = float(values["samples"][rank] / values["steps"][rank])
    return MemoryRoom(rank, table.seats.node_of(rank), float(peak[rank]), float(limit[rank]), samples)
