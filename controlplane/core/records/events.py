"""What can happen to the core. Every event is a frozen record; results of effects are events too."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.core.records.checkpoint_events import (
    CheckpointAsked,
    CheckpointsFound,
    Collected,
    Fetched,
    Loaded,
    Mirrored,
    PartPersisted,
    Persisted,
    PersistFailed,
    Published,
    Scrubbed,
    SnapshotReady,
    SnapshotVouched,
)
from controlplane.core.records.model import (
    CheckpointRecord,
    Failure,
    Generation,
    JobSpec,
    JobState,
    LemonRecord,
    MemberStatus,
    NodeMarks,
    NodePlace,
    PeerCopy,
    PeerSight,
    Standing,
    Unread,
)
from controlplane.core.records.words import OFF_WIRE

__all__ = [
    "CheckpointAsked",
    "CheckpointsFound",
    "Collected",
    "Fetched",
    "Loaded",
    "Mirrored",
    "PartPersisted",
    "PersistFailed",
    "Persisted",
    "Published",
    "Scrubbed",
    "SnapshotReady",
    "SnapshotVouched",
]


@dataclass(frozen=True, slots=True)
class Elected:
    """This process leads now, with fencing token `term`, and has read these records from etcd.

    Nodes named here get a grace period to report before anything is judged."""

    term: int
    nodes: tuple[str, ...] = ()
    specs: tuple[JobSpec, ...] = ()
    states: tuple[JobState, ...] = ()
    generations: tuple[Generation, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    lemons: tuple[LemonRecord, ...] = ()
    marks: tuple[NodeMarks, ...] = ()
    wall_s: float = 0.0  # Unix time of this event: what histories are dated by
    places: tuple[NodePlace, ...] = ()  # every node that has a record, lost ones too
    unread: tuple[Unread, ...] = ()  # what could not be taken up


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """An agent said hello on a new stream. `incarnation` grows with every agent process of a node."""

    node: str
    incarnation: int
    launcher: str  # incarnation of the node's launcher: same launcher, same rank processes
    address: str  # host that peers use to reach this node's ranks
    slots: int  # ranks it can hold
    port: int  # a free port offered for a plain script's rendezvous
    members: tuple[MemberStatus, ...] = ()
    domain: str = ""  # failure domain (a rack, a power feed); "": the node is its own
    peer: str = ""  # host:port of its peer service; "": it has none
    copies: tuple[PeerCopy, ...] = ()
    process_timeout_s: float = 0.0  # the agent's own waits, to be held against ours; 0: not told
    fence_after_s: float = 0.0
    orphan_timeout_s: float = 0.0
    holdfast_version: str = ""  # of its agent; "": not told
    jobs: tuple[str, ...] = ()  # whose ranks it takes; (): every job's
    unread: tuple[str, ...] = field(default=(), metadata=OFF_WIRE)  # members told in words unknown here


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """A heartbeat: the agent's whole view of its members, so that a lost report does no harm.

    `seq` grows with every report and beat of one incarnation; older ones are dropped."""

    node: str
    incarnation: int
    seq: int
    port: int
    members: tuple[MemberStatus, ...] = ()
    copies: tuple[PeerCopy, ...] = ()
    unread: tuple[str, ...] = field(default=(), metadata=OFF_WIRE)  # members told in words unknown here


@dataclass(frozen=True, slots=True)
class NodesHeard:
    """Many nodes' beats as one digest: each of these agents (node, incarnation) spoke, with nothing new."""

    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One member changed. The same content as in a beat, sent at once."""

    node: str
    incarnation: int
    seq: int
    status: MemberStatus


@dataclass(frozen=True, slots=True)
class NodeBroken:
    """An agent's stream broke: suspicion, not yet a verdict."""

    node: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device became unhealthy, or healthy again."""

    node: str
    incarnation: int
    device: str
    healthy: bool
    reason: str


@dataclass(frozen=True, slots=True)
class MemberStarted:
    """A member reached its first committed step in a generation (the end of an incident for it).

    Phases are durations in s on the member's own clock: form (groups built), restore (state in
    place), first_step (first step completed). `inexact`: what of it is not as it would be had nothing
    failed, "" when all is."""

    node: str
    incarnation: int
    member: str
    job: str
    generation: int
    step: int
    form_s: float
    restore_s: float
    first_step_s: float
    inexact: str = ""


@dataclass(frozen=True, slots=True)
class OrderFailed:
    """An agent refused or could not carry out an order about a member."""

    node: str
    incarnation: int
    job: str
    member: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class PeersLooked:
    """What a node found when it dialled the peers it was told to (see LookAtPeers)."""

    node: str
    incarnation: int
    round: int  # as in the order
    found: tuple[PeerSight, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """The answer to a Probe: the node's agent took a connection, or why it did not."""

    node: str
    incarnation: int
    answered: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DcsChanged:
    """etcd answers the leader's keepalives, or has ceased to."""

    available: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QuarantineReleased:
    """A person gives a node its good name back: its history is forgotten."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLeaving:
    """An agent was told to end: its node goes away in `deadline_s`. A drain that nobody can refuse."""

    node: str
    incarnation: int
    reason: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class NodeReplaced:
    """What became of a ReplaceNode: the platform has taken the node away (`ok`), or why it has not."""

    node: str
    incarnation: int
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """A person wants a node free of ranks. After `deadline_s` they are moved in any case; `force`: even
    when that parks a job."""

    node: str
    reason: str
    deadline_s: float
    force: bool = False


@dataclass(frozen=True, slots=True)
class CordonRequested:
    """A person wants a node to take no new seats from now on (`on`), or to take them again."""

    node: str
    on: bool
    reason: str


@dataclass(frozen=True, slots=True)
class StacksCollected:
    """Where the ranks of a generation on this node stand (see CollectStacks)."""

    node: str
    incarnation: int
    job: str
    generation: int
    round: int  # as in the order
    ranks: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class UserFault:
    """A script found its numbers wrong in `step`. `kind`: nan (NaN or Inf) or user (session.fault)."""

    node: str
    incarnation: int
    job: str
    member: str
    generation: int
    step: int
    kind: str
    reason: str
    rollback: bool = True  # user: an older state is worth a try


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user submitted a job. A job of the same name that is not at its end goes on as it is; when its
    settings are others, the submission is refused."""

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobStopRequested:
    """A user asks for a job to end."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """A person wants a job to stop at a step boundary and to hold its state (`on`), or to go on."""

    job: str
    on: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """A person wants the newest state of a job made durable now."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """etcd holds what the effect with this ticket asked for."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """etcd does not hold it (unreachable, or this leader is fenced: `fenced`)."""

    ticket: int
    reason: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: look at the deadlines."""


Event = (
    Elected
    | NodeJoined
    | NodeBeat
    | NodesHeard
    | MemberReport
    | NodeBroken
    | DeviceReport
    | MemberStarted
    | SnapshotReady
    | SnapshotVouched
    | PartPersisted
    | Persisted
    | PersistFailed
    | Published
    | Mirrored
    | Collected
    | Scrubbed
    | CheckpointAsked
    | CheckpointsFound
    | Fetched
    | Loaded
    | OrderFailed
    | PeersLooked
    | ProbeAnswered
    | DcsChanged
    | QuarantineReleased
    | NodeLeaving
    | NodeReplaced
    | DrainRequested
    | CordonRequested
    | StacksCollected
    | UserFault
    | JobSubmitted
    | JobStopRequested
    | PauseRequested
    | CheckpointWanted
    | Stored
    | StoreFailed
    | Tick
)
