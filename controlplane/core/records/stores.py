"""Define every write to etcd, one record per kind, each one transaction; and a row that cannot be read.

Every write compares the leader's term, so that a leader whose term is over changes nothing. The answer is
the event Stored or StoreFailed with the write's ticket. The write queue (`ClusterState.store`) sets
`ticket` and `term`; until then they are 0."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import (
    CheckpointRecord,
    Generation,
    JobSpec,
    JobState,
    LemonRecord,
    NodeMarks,
)


@dataclass(frozen=True, slots=True)
class Unread:
    """A row of etcd that this version cannot read. `whole`: its job is left alone altogether."""

    key: str
    reason: str
    job: str = ""  # the job it belongs to; "": none
    whole: bool = False


@dataclass(frozen=True, slots=True)
class StoreJob:
    """Put a job's state. `spec` and `generation` are put in the same transaction; None: left as they are."""

    job: str
    state: JobState
    spec: JobSpec | None = None
    generation: Generation | None = None
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Delete every record of an ended job: its own, and those of these checkpoints (ids)."""

    job: str
    checkpoints: tuple[str, ...] = ()
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Put the record of one checkpoint, and name the job's newest good one."""

    job: str
    checkpoint: CheckpointRecord
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class ForgetCheckpoints:
    """Delete the records of these checkpoints of a job, and name the newest good one among the others."""

    job: str
    forget: tuple[str, ...]  # ids of checkpoints
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class StoreNode:
    """Put a node's record: its state and why, its address and failure domain, and its marks."""

    node: str
    state: str
    reason: str
    address: str
    domain: str
    marks: NodeMarks | None = None  # None: none
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Delete a node's record; its history of failures, too, where another machine has taken its place."""

    node: str
    history: LemonRecord | None = None  # with score 0: delete it; None: left as it is
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class StoreHistory:
    """Put a node's history of failures; one whose score is 0 is deleted."""

    history: LemonRecord
    ticket: int = 0
    term: int = 0


Store = StoreJob | ForgetJob | StoreCheckpoint | ForgetCheckpoints | StoreNode | ForgetNode | StoreHistory
"""Every write to etcd."""
STORES = (StoreJob, ForgetJob, StoreCheckpoint, ForgetCheckpoints, StoreNode, ForgetNode, StoreHistory)
"""The same classes, for `isinstance` and for tables by class."""
