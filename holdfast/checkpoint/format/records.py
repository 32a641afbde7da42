"""Define what a writer of a checkpoint tells the coordinator. Standard library only: the core knows it
too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """One writer's share of a checkpoint: its chunks are durable, its part of the manifest too."""

    job: str
    checkpoint: str
    shard: str
    share: int  # of `shares` shares of this shard's bytes
    shares: int
    rank: int  # whose snapshot was read
    member: str
    step: int
    generation: int
    digest: str  # blake3 of the part's content, hex; its name on storage
    bytes_total: int  # of this share's tensors
    bytes_written: int
