"""Define the orders about nodes as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.model import PeerAddress


@dataclass(frozen=True, slots=True)
class Drained:
    """No rank is left on this node and none will be placed there: its agent may end."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LookAtPeers:
    """Dial these peers now, several times each. Answered by PeersLooked with the same `round`."""

    node: str
    job: str  # "": the question is about the node, not about a job
    round: int
    peers: tuple[PeerAddress, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a silent node directly whether it lives.

    Answered by ProbeAnswered; or by a heartbeat that arrives meanwhile; or not at all."""

    address: str  # host:port of its agent's peer service
    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReplaceNode:
    """Have the platform remove this node, on which no rank sits, and start a fresh one. Answered by
    NodeReplaced."""

    address: str  # where it was reached: tells it from another machine of the same name
    node: str
    incarnation: int
    domain: str  # its failure domain: the host, where the node is a pod
    reason: str
    gone: bool  # it is silent, so it cannot be asked to end first
