"""Define a planned change of a job's places."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.core.records.model import (
    Strategy,
)
from controlplane.core.records.places import Spot

WARM, HALT, SAVE = "warm", "halt", "save"


@dataclass(slots=True)
class Resize:
    """One planned change. `spots`: the places of the coming ranks, by rank; times in s."""

    strategy: Strategy
    reason: str
    spots: tuple[Spot, ...]
    begun_at: float
    stage: str = WARM
    fresh: dict[Spot, str] = field(default_factory=dict)  # members that stand ready for their places
    keep: bool = False  # the state has to be durable before the places change
    hard_at: float = 0.0  # whoever has not stopped by then is interrupted
    met: bool = False  # somebody waits at the barrier
    save_by: float = 0.0
    again_at: float = 0.0  # when the checkpoint that it waits for may be tried again
    durable: bool = False  # it is committed, and visible
