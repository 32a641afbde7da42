"""Define one known copy of a shard's state, from which restore points are chosen; the orders about replicas
of snapshots in other nodes' memory; and those about nodes as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.model import WHOLE_STATE, Tier

if TYPE_CHECKING:
    from controlplane.core.records.model import Partner, PeerAddress


@dataclass(frozen=True, slots=True)
class Copy:
    """One shard of the state after `step` steps, at a place that rank `rank` can read.

    Shards of equal step and equal `origin` belong to one state and may be combined; others may not."""

    tier: Tier
    step: int
    rank: int  # of the coming generation: it holds the copy, or would read it
    shard: str = WHOLE_STATE
    member: str = ""  # MEMORY: whose arena; PEER: whose snapshot
    checkpoint: str = ""  # CHECKPOINT: its id
    origin: int = 0  # origin generation: the one that computed the state
    node: str = ""  # PEER: the node that holds the replica
    generation: int = 0  # PEER: the generation that its holder labels it with
    arena: str = ""  # PEER, CHECKPOINT: the member whose arena it is in already; "": not fetched yet
    # CHECKPOINT: of its manifest. PEER: of its bytes, where somebody vouches for them; "": nobody does.
    digest: str = ""
    doubted: bool = False  # PEER: nobody vouches for it
    suspect: bool = False  # replicas of this state differed, which was only reported
    hearsay: bool = False  # PEER: only its holders say which digest its rank's agent vouched for


@dataclass(frozen=True, slots=True)
class Replicate:
    """Keep copying the released snapshots of these members to their replica holders.

    It replaces earlier orders of the job. `partners` empty: stop copying."""

    node: str
    job: str
    partners: tuple[Partner, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Copy the replica of `source`'s snapshot from the agent at `address` into the arena of `member`.
    Answered by Fetched."""

    node: str
    member: str
    job: str
    source: str  # the member whose snapshot it is
    step: int
    generation: int
    address: str
    digest: str = ""  # what the bytes must hash to; "": nobody has vouched for them


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the replicas of these members' snapshots on this node: their ranks are gone, and newer state
    has all the replicas that it should have."""

    node: str
    job: str
    members: tuple[str, ...]


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
