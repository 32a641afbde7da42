"""Say when the links of a job are probed, and which node probes which in which turn.

In its k-th turn every node probes the one that is the k-th distance further along the ring. In a small job
the nodes take these turns one after the other; in a larger one all at once, so that in each turn each node
sends one burst and receives one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from controlplane.analysis.links import policy
from controlplane.core.failures.network import distances

if TYPE_CHECKING:
    from collections.abc import Sequence


def peers_of(ring: Sequence[str], index: int) -> list[str]:
    """Which nodes the one at `index` probes, in order: itself first, which needs no link."""
    size = len(ring)
    steps = range(1, size) if size <= policy.ALL_PAIRS_UP_TO else distances(size)
    return [ring[index], *(ring[(index + step) % size] for step in steps)]


def slot_s(size: int) -> float:
    """How long after one turn of a node its next one comes."""
    return policy.SLOT_S * (size if size <= policy.ALL_PAIRS_UP_TO else 1)


def begins_s(size: int, index: int) -> float:
    """How long after the order the first turn of the node at `index` comes."""
    return policy.SLOT_S * index if size <= policy.ALL_PAIRS_UP_TO else 0.0


def rest_s(size: int) -> float:
    """How long after one round the next one may begin."""
    turns = size if size <= policy.ALL_PAIRS_UP_TO else 1 + len(distances(size))
    return max(policy.ROUND_REST_S, turns * slot_s(size) + policy.ROUND_ROOM_S)


class Purpose(Enum):
    """Why links are probed."""

    REFERENCE = "reference"  # once, while nothing is wrong
    SUSPICION = "suspicion"


class ProbePlan:
    """When the links of one job are probed. It knows no clock."""

    def __init__(self) -> None:
        self.suspected = False
        self._nodes: tuple[str, ...] = ()
        self._referred = False
        self._asked_s = float("-inf")
        self._spoken_s = float("-inf")  # when something last spoke for a suspicion
        self._rounds = 0  # of this suspicion

    def due(self, now_s: float, nodes: Sequence[str], *, suspicious: bool) -> Purpose | None:
        """Take in whether communication is suspicious now; say whether links are to be probed, and why.

        Raises nothing; None: not now. With one node there is no link."""
        if tuple(nodes) != self._nodes:
            self._nodes, self._referred = tuple(nodes), False
            self.suspected, self._rounds = False, 0
        if suspicious:
            self.suspected, self._spoken_s = True, now_s
        elif now_s - self._spoken_s > policy.CALM_S:
            self.suspected, self._rounds = False, 0
        if not 2 <= len(nodes) <= policy.NODES_MAX:
            return None
        later = self._rounds >= policy.EAGER_ROUNDS
        if now_s - self._asked_s < (policy.LATER_REST_S if later else rest_s(len(nodes))):
            return None
        if suspicious:
            return Purpose.SUSPICION
        return None if self._referred or self.suspected else Purpose.REFERENCE

    def asked(self, now_s: float, purpose: Purpose) -> None:
        """Note that a round was asked for."""
        self._asked_s = now_s
        if purpose is Purpose.SUSPICION:
            self._rounds += 1
        else:
            self._referred = True
