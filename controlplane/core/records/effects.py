"""Define every effect: what the core asks its shell, the daemon, to do.

Orders to agents are levels: an order may be repeated, and an agent that has carried it out changes nothing
more. So the core repeats an order until it sees the result, and a lost message does no harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.copies import (
    Discard,
    Drained,
    Fetch,
    LookAtPeers,
    Probe,
    ReplaceNode,
    Replicate,
)
from controlplane.core.records.model import NO_RANK, NO_STEP, WHOLE_STATE, Role
from controlplane.core.records.node_checks import JudgeNode
from controlplane.core.records.notes import (
    Alert,
    CheckpointChanged,
    IncidentChanged,
    JobChanged,
    Judged,
    Note,
)
from controlplane.core.records.stores import (
    STORES,
    ForgetCheckpoints,
    ForgetJob,
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
        JobSpec,
        PeerAddress,
        Standing,
    )

__all__ = [
    "STORES",
    "Alert",
    "CheckpointChanged",
    "Discard",
    "Drained",
    "Fetch",
    "ForgetCheckpoints",
    "ForgetJob",
    "ForgetNode",
    "IncidentChanged",
    "JobChanged",
    "JudgeNode",
    "Judged",
    "LookAtPeers",
    "Note",
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
    """The node's hello is refused, with the reason and what to do; its stream ends.

    `retry`: the cause may pass by itself (the node's former agent may still be connected), so try again."""

    node: str
    incarnation: int
    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Have this member on this node: a warm interpreter, which runs the script unless `warm_only`."""

    node: str
    member: str
    spec: JobSpec
    role: Role
    warm_only: bool = False  # do not run the script yet: it is not known to use the SDK
    rank: int = NO_RANK
    local_rank: int = NO_RANK
    generation: Generation | None = None  # its world size, nodes and master go into the environment


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The generation is broken: its members on this node stop, keep their state and come to the barrier.

    `gentle`: nothing is broken; each member stops at its next step boundary. `keep`: each then takes a
    snapshot."""

    node: str
    job: str
    generation: int
    reason: str
    gentle: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """etcd holds this generation: its members on this node build groups, restore their state and continue."""

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
    """The job is over on this node: its ranks are told so, and processes still alive after a grace period
    are killed. Members that have finished end by themselves. `left`: the job continues on other nodes."""

    node: str
    job: str
    ok: bool
    reason: str
    left: bool = False


@dataclass(frozen=True, slots=True)
class Return:
    """Let the members of this generation return from their elastic function: all have finished, and the
    final state is safe. The job ends when their processes do."""

    node: str
    job: str
    generation: int


@dataclass(frozen=True, slots=True)
class Release:
    """Snapshot `step` is READY on all ranks: the job's older slots may be overwritten.

    Newer snapshots up to `void_step` may be overwritten, too: some rank skipped them, so they can never be
    whole. `kept_from`: no checkpoint is made of steps before this one, so they need not be kept."""

    node: str
    job: str
    step: int
    void_step: int = NO_STEP
    kept_from: int = 0


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
    """Finalize a checkpoint whose parts are all durable: read them back, check that they cover every
    shard, make the manifest's content durable. Answered by Persisted or PersistFailed."""

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
    """Copy to the second storage what it lacks of this checkpoint, the manifest last. Answered by
    Mirrored."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete these checkpoints: first their manifests, then chunks that no other manifest names. Answered
    by Collected."""

    node: str
    spec: JobSpec
    remove: tuple[str, ...]  # ids
    keep: tuple[str, ...]  # ids of all other checkpoints that etcd knows
    busy: tuple[str, ...]  # bases that a save in flight writes to: nothing of them is deleted


@dataclass(frozen=True, slots=True)
class Scrub:
    """Read this checkpoint again and repair chunks that have rotted. Answered by Scrubbed."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class CheckpointTold:
    """The answer to a script's checkpoint request: committed, skipped or failed, and why."""

    node: str
    job: str
    member: str
    request: str
    outcome: str
    reason: str
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class CollectStacks:
    """Collect stack reports of the job's ranks on this node. Answered by StacksCollected of that `round`."""

    node: str
    job: str
    generation: int
    round: int
    bytes_max: int  # limit for all stacks of the answer together, and for all flight records
    records_only: bool = False  # no stacks: the generation is over, or ends
    at_barrier: bool = False  # of all ranks there, also of those that do not train in the generation


@dataclass(frozen=True, slots=True)
class JudgeRecords:
    """Judge the flight records of these ranks, all of one generation. Answered by RecordsJudged with the same
    `round`. `broke`: the generation has ended, so ranks that come late prove nothing.

    `again`: of a hang, the records that were read once all those of `ranks` were there. Ranks are read at
    different moments, so only what still holds in the second reading is true of all of them at once."""

    job: str
    generation: int
    round: int
    ranks: tuple[Standing, ...]
    broke: bool = False
    again: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class StacksKept:
    """Stack reports of a hung job, and the rank that was found to hold it up, for the journal's folder and
    people."""

    job: str
    generation: int
    step: int
    summary: str
    ranks: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the manifest visible under its name, unless there is one; mark it as suspect if the record is bad.
    etcd holds the record. Answered by Published."""

    node: str
    spec: JobSpec
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class Load:
    """Load and verify a shard of a checkpoint, or one share of its bytes, into the arena of `member`.
    Answered by Loaded."""

    node: str
    member: str
    spec: JobSpec
    record: CheckpointRecord
    shard: str = WHOLE_STATE
    share: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Measure this node: its parts, each in a process of its own, its clock and its links. Answered by
    NodeChecked.

    The agent measures nothing while a rank lives there, and stops when one is launched."""

    node: str
    round: int  # names the answer
    seconds: float  # how long each number is measured
    timeout_s: float  # what is not measured by then is answered without a number
    fresh_s: float = 0.0  # an answer of this agent that is no older may be sent again; 0: measure anew
    peers: tuple[PeerAddress, ...] = ()  # idle nodes, to which links are measured


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
    | CheckNode
    | JudgeNode
    | Probe
    | ReplaceNode
    | Alert
    | CollectStacks
    | JudgeRecords
    | StacksKept
    | Publish
    | Load
    | Judged
    | IncidentChanged
    | JobChanged
    | CheckpointChanged
    | Note
)
