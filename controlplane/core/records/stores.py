"""Define what the core asks etcd to hold: one record per kind of write, each one transaction.

Every write compares the leader's term, so that a leader whose term is over changes nothing. The answer is the
event Stored or StoreFailed with the write's ticket. `ticket` and `term` are set by the write queue
(`ClusterState.store`); until then they are 0."""

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
class StoreJob:
    """Put a job's state. `spec`, `generation`: put with it, all or nothing; None: left as they are."""

    job: str
    state: JobState
    spec: JobSpec | None = None
    generation: Generation | None = None
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
    """Delete the records of these checkpoints of a job, and name the newest good one that is left."""

    job: str
    forget: tuple[str, ...]  # ids
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class StoreNode:
    """Put a node's record: its state and why, where it is reached, and the marks that outlive a leader."""

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
    """Delete a node's record. Where another machine has taken its place, its history of failures goes too."""

    node: str
    history: LemonRecord | None = None  # one whose score is 0 is deleted; None: left as it is
    ticket: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class StoreHistory:
    """Put a node's history of failures; one whose score is 0 is deleted."""

    history: LemonRecord
    ticket: int = 0
    term: int = 0


Store = StoreJob | StoreCheckpoint | ForgetCheckpoints | StoreNode | ForgetNode | StoreHistory
"""Every write to etcd."""
STORES = (StoreJob, StoreCheckpoint, ForgetCheckpoints, StoreNode, ForgetNode, StoreHistory)
