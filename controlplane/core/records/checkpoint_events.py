"""Define the events about snapshots and checkpoints: part of `events`."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import WHOLE_STATE, CheckpointPart, CheckpointRecord


@dataclass(frozen=True, slots=True)
class SnapshotReady:
    """A slot of a member's arena is READY with the state after `step` steps."""

    node: str
    incarnation: int
    member: str
    job: str
    generation: int
    step: int
    stall_s: float = 0.0  # how long the copy kept the rank from training
    spacing: str = ""  # how often snapshots are taken from now on, and why, in words; "": as before


@dataclass(frozen=True, slots=True)
class SnapshotVouched:
    """The agent of a rank states the digest of the snapshot of `step`.

    Sent before any other node gets a replica of it, and again to each new leader."""

    node: str
    incarnation: int
    member: str
    job: str
    generation: int
    step: int
    digest: str  # blake3, hex


@dataclass(frozen=True, slots=True)
class PartPersisted:
    """One writer's share of a checkpoint in flight is durable."""

    node: str
    incarnation: int
    part: CheckpointPart


@dataclass(frozen=True, slots=True)
class Persisted:
    """The chunks of a checkpoint and the content of its manifest are durable; the manifest is not visible
    yet."""

    node: str
    incarnation: int
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """A share could not be made durable, or the checkpoint not finalized."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint's manifest is visible on storage; reason not "": it could not be made so.

    `understood`: the agent knows marks, and has made the one that was ordered; or, with a reason, it has
    failed at the manifest or the mark. Agents of versions that do not know marks do not say so."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str = ""
    understood: bool = False


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The job's second storage has the checkpoint, too; reason not "": it could not be copied."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """Old checkpoints were deleted from storage; reason not "": not all of them."""

    node: str
    incarnation: int
    job: str
    removed: tuple[str, ...] = ()  # ids whose manifests are gone
    bytes_freed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A checkpoint was read again in the background and `repaired` chunks were written anew.

    `corrupt`: the checkpoint itself is damaged and could not be repaired. Reason not "" without `corrupt`:
    the read failed for another cause."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    repaired: int = 0
    reason: str = ""
    corrupt: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A script wants the state after `step` steps made durable now. `request` identifies the request, so
    that repeating it does no harm."""

    node: str
    incarnation: int
    job: str
    member: str
    generation: int
    step: int
    request: str


@dataclass(frozen=True, slots=True)
class CheckpointsFound:
    """Somebody read these whole checkpoints from a storage: adopt those that etcd does not have."""

    job: str
    records: tuple[CheckpointRecord, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A replica from another node is READY in the arena of `member`; reason not "": it could not be
    fetched."""

    node: str
    incarnation: int
    job: str
    member: str
    source: str  # the member whose snapshot it is
    step: int
    reason: str = ""
    altered: bool = False  # the bytes do not match the digest that the agent of its rank vouched for


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint is loaded and verified in the arena of `member`; reason not "": it could not be loaded.

    `corrupt`: the checkpoint itself is damaged; otherwise the way to it failed (storage away, no memory)."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    member: str
    reason: str = ""
    corrupt: bool = False
    shard: str = WHOLE_STATE  # this and the next two as in the order
    share: int = 0
    shares: int = 1
