"""Define the options of a demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.cli.demo.faults import PlannedFault
    from controlplane.cli.demo.kills import PlannedKill


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the flags ask for."""

    steps: int
    nodes: int
    per_node: int
    kills: tuple[PlannedKill, ...]
    as_json: bool
    keep: bool
    seed: int
    timeout_s: float
    faults: tuple[PlannedFault, ...] = ()  # not empty: diagnose them, and kill nothing
    watch_s: float = 0.0  # how long the job is watched after the last fault has begun
    watch_most_s: float = 0.0  # the same at most, where a fault needs more steps to show

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nodes * self.per_node
