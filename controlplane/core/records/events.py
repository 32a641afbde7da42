"""Define every event that can happen to the core.

Each is a frozen record. The results of effects come back as events, too. Every event of an agent carries
the incarnation of that agent, so that messages of a former one can be told apart and dropped."""

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
from controlplane.core.records.diagnosis import (
    CauseFound,
    Diagnosed,
    NodeResources,
    RecordsJudged,
)
from controlplane.core.records.evidence import ReplicasReported
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
)
from controlplane.core.records.node_checks import NodeChecked, NodeJudged
from controlplane.core.records.requests import (
    CheckpointWanted,
    CordonRequested,
    DrainRequested,
    JobDeleteRequested,
    JobStopRequested,
    JobSubmitted,
    PauseRequested,
    QuarantineReleased,
)
from controlplane.core.records.stores import Unread
from controlplane.core.records.words import OFF_WIRE

__all__ = [
    "CauseFound",
    "CheckpointAsked",
    "CheckpointWanted",
    "CheckpointsFound",
    "Collected",
    "CordonRequested",
    "Diagnosed",
    "DrainRequested",
    "Fetched",
    "JobDeleteRequested",
    "JobStopRequested",
    "JobSubmitted",
    "Loaded",
    "Mirrored",
    "NodeChecked",
    "NodeJudged",
    "PartPersisted",
    "PauseRequested",
    "PersistFailed",
    "Persisted",
    "Published",
    "QuarantineReleased",
    "RecordsJudged",
    "ReplicasReported",
    "Scrubbed",
    "SnapshotReady",
    "SnapshotVouched",
]


@dataclass(frozen=True, slots=True)
class Elected:
    """This process leads now, with `term` as its fencing token, and has read these records from etcd.

    The nodes named here get a grace period to report before anything is judged."""

    term: int
    nodes: tuple[str, ...] = ()
    specs: tuple[JobSpec, ...] = ()
    states: tuple[JobState, ...] = ()
    generations: tuple[Generation, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    lemons: tuple[LemonRecord, ...] = ()
    marks: tuple[NodeMarks, ...] = ()
    wall_s: float = 0.0  # Unix time of this event; histories are dated by it
    places: tuple[NodePlace, ...] = ()  # every node that has a record, also lost ones
    unread: tuple[Unread, ...] = ()  # rows that could not be read


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """An agent opened a stream and introduced itself. `incarnation` is the time (ns) at which it started."""

    node: str
    incarnation: int
    launcher: str  # incarnation of the node's launcher: the same launcher has the same rank processes
    address: str  # host at which other nodes reach this node's ranks
    slots: int  # how many ranks fit on it
    port: int  # a free port offered for a plain script's rendezvous
    members: tuple[MemberStatus, ...] = ()
    domain: str = ""  # failure domain (a rack, a power feed); "": the node is its own
    peer: str = ""  # host:port of its peer service; "": it has none
    copies: tuple[PeerCopy, ...] = ()  # replicas that it keeps of other nodes' snapshots
    process_timeout_s: float = 0.0  # the agent's own waits, checked against ours; 0: not sent
    fence_after_s: float = 0.0
    orphan_timeout_s: float = 0.0
    holdfast_version: str = ""  # of its agent; "": not sent
    jobs: tuple[str, ...] = ()  # the jobs whose ranks it takes; (): any
    # Members whose status this version cannot read.
    unread: tuple[str, ...] = field(default=(), metadata=OFF_WIRE)


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """A heartbeat. It carries the agent's whole view, so that a lost report does no harm.

    `seq` grows with every report and heartbeat of one incarnation; older ones are dropped."""

    node: str
    incarnation: int
    seq: int
    port: int
    members: tuple[MemberStatus, ...] = ()
    copies: tuple[PeerCopy, ...] = ()
    # Members whose status this version cannot read.
    unread: tuple[str, ...] = field(default=(), metadata=OFF_WIRE)


@dataclass(frozen=True, slots=True)
class StepBeat:
    """A heartbeat that is like the whole one with the number `like`, apart from steps: those of its members,
    in their order (step_beats.py)."""

    node: str
    incarnation: int
    seq: int
    like: int
    steps: tuple[int, ...] = ()
    snapshot_steps: tuple[int, ...] = ()
    snapshots_before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodesHeard:
    """Heartbeats of many nodes at once: each agent (node, incarnation) lives and has nothing new."""

    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The status of one member changed. A heartbeat would carry the same; this is sent at once."""

    node: str
    incarnation: int
    seq: int
    status: MemberStatus


@dataclass(frozen=True, slots=True)
class NodeBroken:
    """An agent's stream broke: the node becomes suspect, nothing is lost yet."""

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
    """A member completed its first step in a generation: for it the incident is over.

    Phases are in s on the member's own clock: form (build the groups), restore (put the state in place),
    first_step. `inexact`: what differs from a run without failure; "": nothing."""

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
    """An agent refused an order about a member, or could not carry it out."""

    node: str
    incarnation: int
    job: str
    member: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class PeersLooked:
    """What a node found when it dialled the peers of a LookAtPeers order."""

    node: str
    incarnation: int
    round: int  # as in the order
    found: tuple[PeerSight, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """The result of a Probe: whether the node's agent took a connection, else why not."""

    node: str
    incarnation: int
    answered: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DcsChanged:
    """etcd has begun, or ceased, to answer the leader's keepalives."""

    available: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeLeaving:
    """An agent has been asked to end, in `deadline_s`. Treated as a drain that cannot be refused."""

    node: str
    incarnation: int
    reason: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class NodeReplaced:
    """The result of a ReplaceNode: `ok`: the platform has removed the node; else `reason` says why not."""

    node: str
    incarnation: int
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class StacksCollected:
    """The stack reports of one node's ranks: the answer to CollectStacks."""

    node: str
    incarnation: int
    job: str
    generation: int
    round: int  # as in the order
    ranks: tuple[Standing, ...] = ()
    resources: NodeResources | None = None  # of the node; None: not known


@dataclass(frozen=True, slots=True)
class UserFault:
    """A script found its numbers wrong in `step`. `kind`: nan (NaN or Inf), or user (`session.fault`)."""

    node: str
    incarnation: int
    job: str
    member: str
    generation: int
    step: int
    kind: str
    reason: str
    rollback: bool = True  # kind user: the script thinks an older state may help


@dataclass(frozen=True, slots=True)
class Stored:
    """etcd holds the write with this ticket (see `stores.py`)."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """etcd does not hold it: etcd was unreachable, or another leader has taken over (`fenced`)."""

    ticket: int
    reason: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class LeaderDeaf:
    """For `spent_s` until now this leader has not heard its agents, because of `reason`: that they were
    silent says nothing. `newcomers`: only those without a stream here, who wait to be greeted."""

    spent_s: float
    reason: str
    newcomers: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: deadlines may be due."""


Event = (
    Elected
    | NodeJoined
    | NodeBeat
    | StepBeat
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
    | ReplicasReported
    | JobSubmitted
    | JobStopRequested
    | JobDeleteRequested
    | PauseRequested
    | CheckpointWanted
    | Diagnosed
    | CauseFound
    | RecordsJudged
    | NodeChecked
    | NodeJudged
    | Stored
    | StoreFailed
    | LeaderDeaf
    | Tick
)
