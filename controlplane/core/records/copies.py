"""Define a copy of a shard's state, as restore points are chosen from."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import WHOLE_STATE, Tier


@dataclass(frozen=True, slots=True)
class Copy:
    """One shard of the state after `step` steps, where rank `rank` can get at it.

    `born`: the generation that computed it; shards of one step and birth are one state."""

    tier: Tier
    step: int
    rank: int
    shard: str = WHOLE_STATE
    member: str = ""  # MEMORY: in whose arena; PEER: whose snapshot it is
    checkpoint: str = ""
    born: int = 0
    node: str = ""  # PEER: who keeps it
    generation: int = 0  # PEER: what it is labelled with there
    arena: str = ""  # PEER, CHECKPOINT: the member in whose arena it is already
    digest: str = ""  # CHECKPOINT: of its manifest; PEER: of its bytes, as far as somebody vouches for them
    doubted: bool = False  # PEER: nobody vouches for it
    hearsay: bool = False  # PEER: only those who keep it say what its rank's agent vouched for
