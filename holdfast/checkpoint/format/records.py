"""Define the record that a writer of a checkpoint sends to the coordinator.

Standard library only: the coordinator's core uses it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """One writer's share of a checkpoint. Its chunks and its part of the manifest are durable."""

    job: str
    checkpoint: str
    shard: str
    share: int  # share number; the shard's bytes are divided into `shares`
    shares: int
    rank: int  # the rank whose snapshot was read
    member: str
    step: int
    generation: int
    digest: str  # blake3 of the part's content in hex: its name on storage
    bytes_total: int  # bytes of this share's tensors
    bytes_written: int
