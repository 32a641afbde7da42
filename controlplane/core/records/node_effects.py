"""What the core asks its shell to do about nodes as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.model import PeerAddress


@dataclass(frozen=True, slots=True)
class Drained:
    """No rank sits on this node any more, and none will: its agent may end."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LookAtPeers:
    """Dial these peers now, several times each. Answered by PeersLooked with the same `round`."""

    node: str
    job: str
    round: int
    peers: tuple[PeerAddress, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a silent node directly whether it lives. Answered by ProbeAnswered, by silence, or not at all."""

    address: str  # host:port of its agent's peer service
    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReplaceNode:
    """Have the platform take this node away and make a fresh one: no rank sits there. `gone`: nothing is
    heard of it, so that it cannot be asked to end. Answered by NodeReplaced."""

    address: str  # at which it was reached: another machine of its name has another
    node: str
    incarnation: int
    domain: str  # what it fails together with: its host, where it is a pod
    reason: str
    gone: bool
