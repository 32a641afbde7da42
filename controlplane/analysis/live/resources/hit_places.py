"""Remember where something holds ranks up, so that it is said of one place until that is over there.

What is near a limit, or told in some windows only, would else be found on one node, then on most, then on
none. A node that was hit stays so until it is clearly free; what was found of most nodes stays so until none
is hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy

if TYPE_CHECKING:
    from controlplane.analysis.live.table import Bools, Ints
    from controlplane.analysis.robust import Floats


class HitPlaces:
    """The nodes that are hit, and whether that was found of most nodes. A generation keeps its nodes."""

    def __init__(self) -> None:
        self._nodes: frozenset[int] = frozenset()
        self.everywhere = False

    def stood(self, node: Ints) -> Bools:
        """The ranks on nodes that were hit. `node`: of each rank."""
        found: Bools = np.isin(node, list(self._nodes))
        return found

    def renew(self, node: Ints, nodes: int, begins: Bools, lately: Floats, limit: float) -> list[int]:
        """Take in a window. Return the nodes that are hit, in order.

        `node`: of each rank; `nodes`: how many there are; `begins`: ranks that are held up too long by now;
        `lately`: how long each was held up over more windows (NaN: not known), `limit`: what is too much."""
        with np.errstate(invalid="ignore"):
            goes_on = self.stood(node) & (lately >= policy.HIT_STILL * limit)
        hit = sorted({int(each) for each in np.unique(node[begins | goes_on]) if each >= 0})
        self._nodes = frozenset(hit)
        self.everywhere = len(hit) > 1 and (self.everywhere or 2 * len(hit) > nodes)
        return hit
