"""Hold the faults of a cluster, and say what was known of them by a day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.robust import Floats

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FaultHistory:
    """Faults by their beginning, in days since the history's own; those of one node do not overlap.

    `end` is infinite while a fault lasts. `names`: of the first nodes; the others have never failed."""

    nodes: int
    names: tuple[str, ...]
    node: Ints  # number of the node, per fault
    start: Floats  # days
    end: Floats  # days
    notes: tuple[str, ...] = ()

    @property
    def observed_until(self) -> float:
        """The day of the last event; what was after it is not known. 0 without faults."""
        ends = self.end[np.isfinite(self.end)]
        return float(max(self.start.max(initial=0.0), ends.max(initial=0.0)))

    def known_by(self, day: float) -> FaultHistory:
        """The history as it was known on a day: later faults are left out, and so are the ends to come."""
        kept = self.start <= day
        end = np.where(self.end[kept] <= day, self.end[kept], np.inf)
        return FaultHistory(self.nodes, self.names, self.node[kept], self.start[kept], end, self.notes)

    def up(self, day: float) -> Flags:
        """Whether each node is up on a day: only such a node is at risk."""
        found = np.ones(self.nodes, dtype=bool)
        found[self.node[(self.start <= day) & (self.end > day)]] = False
        return found

    def fails_within(self, day: float, days: float) -> Flags:
        """Whether a fault of each node begins after `day`, and at most `days` after it."""
        found = np.zeros(self.nodes, dtype=bool)
        found[self.node[(self.start > day) & (self.start <= day + days)]] = True
        return found

    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes. Those that are in no fault are called never-failed-1, -2 and so on."""
        prefix = "never-failed-"
        while any(name.startswith(prefix) for name in self.names):
            prefix = "really-" + prefix
        return (*self.names, *(f"{prefix}{at + 1}" for at in range(self.nodes - len(self.names))))
