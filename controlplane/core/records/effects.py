"""What the core asks its shell to do. Orders to agents may be repeated: agents treat them as levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.copy_effects import Discard, Fetch, Replicate
from controlplane.core.records.model import NO_RANK, NO_STEP, WHOLE_STATE, Role
from controlplane.core.records.node_effects import Drained, LookAtPeers, Probe, ReplaceNode
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.stores import (
    STORES,
    ForgetCheckpoints,
    ForgetNode,
    Store,
    StoreCheckpoint,
    StoreHistory,
    StoreJob,
    StoreNode,
)

if TYPE_CHECKING:
    from controlplane.core.records.model import (
        CheckpointPart,
        CheckpointRecord,
        Generation,
        Incident,
        JobSpec,
        JobState,
        Plan,
        Standing,
        Verdict,
    )

__all__ = [
    "STORES",
    "Discard",
    "Drained",
    "Fetch",
    "ForgetCheckpoints",
    "ForgetNode",
    "LookAtPeers",
    "Probe",
    "ReplaceNode",
    "Replicate",
    "Store",
    "StoreCheckpoint",
    "StoreHistory",
    "StoreJob",
    "StoreNode",
]


@dataclass(frozen=True, slots=True)
class Admit:
    """The node's hello is accepted. Orders follow."""

    node: str
    incarnation: int
    term: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The node's hello is refused, with the reason and the mend; its stream ends.

    `retry`: what stands in its way may pass by itself (the node's former life is not known to be over)."""

    node: str
    incarnation: int
    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Have a member on this node: a warm interpreter, running the script unless `warm_only`."""

    node: str
    member: str
    spec: JobSpec
    role: Role
    warm_only: bool = False  # a spare of a job whose script is not known to use the SDK
    rank: int = NO_RANK
    local_rank: int = NO_RANK
    generation: Generation | None = None  # names world size, nodes and master for the environment


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The generation is broken: its members on this node stop, keep their state and come to READY.

    `gentle`: it is whole, and to end at the next step boundary of each member; nothing is broken off.
    `keep`: each then takes a snapshot of where it stands."""

    node: str
    job: str
    generation: int
    reason: str
    gentle: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """etcd holds this generation: its members on this node build groups, restore, and go on."""

    node: str
    generation: Generation


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL this member if it lives."""

    node: str
    job: str
    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The job is over on this node: what still lives of it is ended after a moment, but for members that
    finished well and are about to. `left`: it goes on elsewhere."""

    node: str
    job: str
    ok: bool
    reason: str
    left: bool = False


@dataclass(frozen=True, slots=True)
class Return:
    """Every rank's function is over, its final state safe: members that have finished in this generation
    return from it. What their scripts do behind it is theirs; the job is over when their processes are."""

    node: str
    job: str
    generation: int


@dataclass(frozen=True, slots=True)
class Release:
    """Snapshot `step` is READY on all ranks: older slots of the job may be overwritten. Snapshots up to
    `void_step` besides it never will be: some rank skipped them, so they may be overwritten too."""

    node: str
    job: str
    step: int
    void_step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class Persist:
    """Make a share of this member's snapshot durable for checkpoint `checkpoint`: chunks, then its part of
    the manifest. Answered by PartPersisted or PersistFailed."""

    node: str
    member: str
    spec: JobSpec
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    rank: int = 0
    shard: str = WHOLE_STATE
    share: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True)
class Seal:
    """All parts are durable: read them back, check that they cover every shard, and make the manifest's
    content durable. Answered by Persisted or PersistFailed."""

    node: str
    spec: JobSpec
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    parts: tuple[CheckpointPart, ...]


@dataclass(frozen=True, slots=True)
class Mirror:
    """Copy what the second storage lacks of this checkpoint, then its manifest. Answered by Mirrored."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete these checkpoints' manifests, then what no kept manifest names. Answered by Collected."""

    node: str
    spec: JobSpec
    remove: tuple[str, ...]  # ids
    keep: tuple[str, ...]  # ids of every other checkpoint that the record knows
    busy: tuple[str, ...]  # bases that a save in flight writes to: nothing of theirs is touched


@dataclass(frozen=True, slots=True)
class Scrub:
    """Read this checkpoint again, repair what has rotted. Answered by Scrubbed."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class CheckpointTold:
    """What became of a checkpoint that a script asked for: committed, skipped or failed, and why."""

    node: str
    job: str
    member: str
    request: str
    outcome: str
    reason: str
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """Tell the administrators. The same (kind, subject) again replaces what was told before."""

    kind: str
    severity: str  # warning, critical
    subject: str
    reason: str
    resolved: bool = False
    job: str = ""  # whose it is; "": nobody's in particular


@dataclass(frozen=True, slots=True)
class CollectStacks:
    """Say where the job's ranks on this node stand: steps, collectives, stacks. Answered by StacksCollected
    with the same `round`."""

    node: str
    job: str
    generation: int
    round: int
    bytes_max: int  # of the answer's stacks together


@dataclass(frozen=True, slots=True)
class StacksKept:
    """For the journal's folder and people: where every rank stood when a job hung, and who was named."""

    job: str
    generation: int
    step: int
    summary: str
    ranks: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """etcd holds the record: make the manifest visible, put-if-absent."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch and verify a checkpoint's shard, or one share of its bytes, into the arena of `member`."""

    node: str
    member: str
    spec: JobSpec
    record: CheckpointRecord
    shard: str = WHOLE_STATE
    share: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True)
class Judged:
    """For journal, metrics and people: a verdict and its plan."""

    verdict: Verdict
    plan: Plan
    incident: int


@dataclass(frozen=True, slots=True)
class IncidentChanged:
    """For journal, metrics and people: an incident reached a phase, or closed."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class JobChanged:
    """For journal, metrics and people: a job's phase changed, and why."""

    state: JobState


@dataclass(frozen=True, slots=True)
class CheckpointChanged:
    """For journal, metrics and people: committed, failed, skipped or found bad, with the reason."""

    job: str
    checkpoint: str
    outcome: str  # started, provisional, committed, failed, skipped, bad; mirrored, unmirrored;
    # repaired, collected; adopted, refused
    reason: str
    record: CheckpointRecord | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """For the journal: a decision that is none of the above (a stale message dropped, a node suspected)."""

    kind: NoteKind
    subject: str
    reason: str


Effect = (
    Store
    | Admit
    | Refuse
    | Launch
    | Interrupt
    | Form
    | Kill
    | Complete
    | Return
    | Release
    | Persist
    | Seal
    | Mirror
    | Collect
    | Scrub
    | Replicate
    | Discard
    | Fetch
    | CheckpointTold
    | Drained
    | LookAtPeers
    | Probe
    | ReplaceNode
    | Alert
    | CollectStacks
    | StacksKept
    | Publish
    | Load
    | Judged
    | IncidentChanged
    | JobChanged
    | CheckpointChanged
    | Note
)
