"""Define one reading of a node check, and how it is written as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

OFFSET, BANDWIDTH = "clock.offset", "link.bandwidth"
"""How the names of readings begin that compare this node's clock with another one, and that send bytes to
peers."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One measured number, or why there is none.

    - `name`: what was measured, such as `cpu.gemm.float32` or `disk.write`; nodes are compared by it.
    - `value`, `unit`: the number; None: it was not measured.
    - `higher`: whether more is better.
    - `broken`: why the part does not work; "": it does, or could not be asked.
    - `reason`: why there is no number; of a link that is down, which has the number 0, why it is.
    - `crowded`: the share of the CPU time wanted meanwhile that other processes had.
    - `within`: the true number is at most this far from `value`; 0: not said."""

    name: str
    value: float | None
    unit: str
    higher: bool = True
    broken: str = ""
    reason: str = ""
    crowded: float = 0.0
    within: float = 0.0

    def line(self) -> str:
        """The reading as one line of JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})
