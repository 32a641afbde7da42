"""Define a place for a rank, and a planned change of a job's places with its stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.core.records.model import (
    Strategy,
)

WARM, HALT, SAVE = "warm", "halt", "save"
"""Stages. WARM: new members come to the barrier while the others train. HALT: all ranks stop at a step
boundary. SAVE: the state there is made durable where that is needed; then the places change."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one rank: local rank `local_rank` on `node`. It names no member yet."""

    node: str
    local_rank: int


@dataclass(slots=True)
class Resize:
    """One planned change. `spots`: the places of all ranks afterwards, by rank; times in s."""

    strategy: Strategy
    reason: str
    spots: tuple[Spot, ...]
    begun_at: float
    stage: str = WARM
    # New place -> the member that comes to the barrier for it.
    fresh: dict[Spot, str] = field(default_factory=dict)
    keep: bool = False  # the state must be durable before the places change
    hard_at: float = 0.0  # ranks that have not stopped by then are interrupted
    met: bool = False  # some rank waits at the barrier
    save_by: float = 0.0  # without a durable state by then, the change is dropped
    again_at: float = 0.0  # the checkpoint that it waits for is tried again then
    durable: bool = False  # that checkpoint is committed and visible, or not needed
