"""What can happen to snapshots and checkpoints: the part of `events` that is about them."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import WHOLE_STATE, CheckpointPart, CheckpointRecord


@dataclass(frozen=True, slots=True)
class SnapshotReady:
    """A member's slot is READY with the state of `step` completed steps."""

    node: str
    incarnation: int
    member: str
    job: str
    generation: int
    step: int
    stall_s: float = 0.0  # how long the copy kept the rank from training


@dataclass(frozen=True, slots=True)
class SnapshotVouched:
    """The agent of a rank says what the snapshot of `step` hashes to: said before any other node has a copy
    of it, and said again to each new leader."""

    node: str
    incarnation: int
    member: str
    job: str
    generation: int
    step: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartPersisted:
    """One writer's share of the checkpoint in flight is durable."""

    node: str
    incarnation: int
    part: CheckpointPart


@dataclass(frozen=True, slots=True)
class Persisted:
    """A snapshot's chunks and its manifest's content are durable; the manifest is not yet visible."""

    node: str
    incarnation: int
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """A snapshot could not be made durable."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint's manifest is visible on storage (or could not be made so: reason not "")."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The job's second storage holds the checkpoint too (or could not be made to: reason not "")."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What retention no longer wants is off the storage (or is not: reason not "")."""

    node: str
    incarnation: int
    job: str
    removed: tuple[str, ...] = ()  # ids whose manifests are gone
    bytes_freed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A checkpoint was read again in the background, `repaired` chunks written anew (or it is bad).

    `corrupt`: the checkpoint itself is at fault and could not be repaired."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    repaired: int = 0
    reason: str = ""
    corrupt: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A script wants the state after `step` steps made durable now; `request` names the asking."""

    node: str
    incarnation: int
    job: str
    member: str
    generation: int
    step: int
    request: str


@dataclass(frozen=True, slots=True)
class CheckpointsFound:
    """Someone read these whole checkpoints off a storage: take up what etcd does not know, by rule."""

    job: str
    records: tuple[CheckpointRecord, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A peer's copy is in the arena of `member` and READY (or not: reason not "")."""

    node: str
    incarnation: int
    job: str
    member: str
    source: str  # the member whose snapshot it is
    step: int
    reason: str = ""
    altered: bool = False  # what came is not what the agent of its rank vouched for


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint was fetched and verified into the arena of `member` (or not: reason not "").

    `corrupt`: the checkpoint itself is at fault, not the way to it (storage away, no memory)."""

    node: str
    incarnation: int
    job: str
    checkpoint: str
    member: str
    reason: str = ""
    corrupt: bool = False
    shard: str = WHOLE_STATE  # what was asked for, as in the order
    share: int = 0
    shares: int = 1
