"""Define one known copy of a shard's state: restore points are chosen from these."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import WHOLE_STATE, Tier


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
    hearsay: bool = False  # PEER: only its holders say which digest its rank's agent vouched for
