"""Define the frozen records that events, effects and etcd are made of.

Every record is immutable; a field with a unit carries it in its name. Records that agents send are encoded
from these annotations (`controlplane.wire.codec`): a new field needs no second definition."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.core.records.node_checks import BadPart
from controlplane.core.records.words import (
    NO_RANK,
    NO_STEP,
    WHOLE_STATE,
    Cause,
    JobPhase,
    MemberPhase,
    Role,
    Scope,
    Strategy,
    Tier,
)
from holdfast.checkpoint.format.records import CheckpointPart

__all__ = [
    "NO_RANK",
    "NO_STEP",
    "WHOLE_STATE",
    "Cause",
    "CheckpointPart",
    "JobPhase",
    "MemberPhase",
    "Role",
    "Scope",
    "Strategy",
    "Tier",
]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user submitted. Counts are per job unless the name says otherwise."""

    job: str
    argv: tuple[str, ...]  # script and its arguments
    cwd: str  # working directory of the ranks
    env: tuple[tuple[str, str], ...] = ()  # (name, value), added to the ranks' environment
    nnodes_min: int = 1  # below so many nodes the job parks
    nnodes_max: int = 1
    nproc_per_node: int = 1  # ranks per node
    spares_per_node: int = 0  # warm processes per node that replace dead ranks
    max_restarts: int = 3  # retries of one failure at one step; of a plain script: restarts in all
    storage: str = ""  # fsspec URL of the checkpoints; "": none are made
    snapshot_every: int = 10  # steps between snapshots in shared memory
    checkpoint_every: int = 100  # steps between checkpoints, a multiple of snapshot_every
    full_every: int = 1000  # steps between full checkpoints, each of which starts a new base
    module: bool = False  # argv[0] is a module name (python -m)
    no_python: bool = False  # argv[0] is an executable, not a Python script
    checkpoint_every_s: float = 0.0  # s between checkpoints, in addition to the steps; 0: by steps alone
    checkpoint_auto: bool = False  # Young/Daly's formula chooses the interval from observed MTBF and costs
    keep_last: int = 0  # how many of the newest checkpoints are kept; 0: all
    keep_every: int = 0  # the first checkpoint at or after each multiple of this step is kept; 0: none
    codec: str = "auto"  # compression: none, zstd, or auto (chosen from the measured upload speed)
    mirror: str = ""  # fsspec URL of a second storage that gets every checkpoint too; "": none
    commit_when: str = "both"  # with a mirror: commit when "both" storages hold it, or the "first" alone
    replicas: int = 1  # copies of each snapshot in the memory of nodes in other failure domains
    scrub_every_s: float = 3600.0  # s between background reads of the newest checkpoint; 0: none
    replica_nodes: int = 1  # nodes that hold one replica of the model: dropped and added together
    on_nan: str = "rollback"  # at a NaN or Inf loss: "rollback" to an older state, "stop", or "ignore"
    nan_skip_window: int = 0  # batches skipped after such a rollback, the last of them the faulty one
    tensor_parallel: int = 1  # ranks that split each layer; this times the next two: ranks of one replica
    pipeline_parallel: int = 1  # consecutive groups of layers, one group of ranks each
    context_parallel: int = 1  # parts that each sequence is split into
    check_replicas_every: int = 0  # steps between comparisons of whole replicas; 0: never
    on_corrupt_state: str = ""  # when a replica differs: "act": go back before it; "": only report it
    snapshot_auto: bool = False  # take snapshots more often than snapshot_every says where it costs little

    @property
    def replica_ranks(self) -> int:
        """How many ranks hold one replica of the model; 1: the job declares no such layout."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def copied_away(self) -> bool:
        """Whether other nodes keep copies of each snapshot."""
        return self.replicas > 0 and self.nnodes_max > 1


@dataclass(frozen=True, slots=True)
class Failure:
    """How one member ended: evidence for a verdict."""

    cause: Cause
    message: str  # one line for people
    exit_code: int | None = None
    signal: int | None = None
    step: int = NO_STEP  # the step in which it failed
    exception: str = ""  # type name, when the script raised one; "": it did not
    traceback: str = ""
    age_s: float = 0.0  # s between the estimated moment of the failure and its report


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as its agent sees it now. A status is a level: the newest one replaces all before it."""

    member: str
    job: str
    phase: MemberPhase
    elastic: bool = False  # its script has called the SDK
    role: Role = Role.RANK
    generation: int = 0  # the newest generation it was given, or was launched under; 0: none
    rank: int = NO_RANK
    step: int = NO_STEP  # the step it is in, counted from 0
    held_step: int = NO_STEP  # READY, FINISHED: clean step, completed steps its state belongs to
    pid: int = 0
    store: str = ""  # host:port of the TCPStore that it serves to the other ranks
    state_bytes: int = 0  # size of its tracked state; 0: not known yet
    snapshot_step: int = NO_STEP  # newest READY slot of its arena, which outlives the process
    snapshot_generation: int = 0  # the generation that wrote that slot
    failure: Failure | None = None  # RAISED, EXITED: how it ended
    no_room: str = ""  # why it has no shared memory for snapshots, and what to do; "": it has
    shard: str = ""  # shard id: ranks with equal ids hold equal state; "": not known yet
    snapshot_before: int = NO_STEP  # the older READY slot, when the same generation wrote it
    former_step: int = NO_STEP  # the older READY slot, when an earlier generation wrote it
    former_generation: int = 0  # that earlier generation
    stalled_s: float = 0.0  # RUNNING: s without progress, once past its own deadline; 0: it progresses
    activity: str = ""  # forward, optimizer, a declared phase; "output": a plain script has printed
    held_generation: int = 0  # the last generation in which its state was restored; 0: none, or unknown
    ended_step: int | None = None  # READY: how many steps it has ended; restore no later one. None: no limit
    offers: bool = False  # it tells of some snapshots only: the ranks agree themselves what they overwrite


@dataclass(frozen=True, slots=True)
class Collective:
    """How far one process group of a rank has come: the last collective that the rank entered."""

    group: str
    sequence: int  # number of collectives of this group entered so far, this one included
    ended: int = -1  # how many of them are known to have ended; -1: not known
    operation: str = ""  # such as gloo:all_reduce; "": not known
    bytes: int = 0  # size of its tensors; 0: not known


@dataclass(frozen=True, slots=True)
class Standing:
    """The stack report of one rank: where it was when stacks were collected."""

    member: str
    rank: int
    step: int
    activity: str  # as MemberStatus.activity
    since_s: float  # s since its last step or change of activity
    stalled: bool  # since_s is past the rank's own deadline
    collectives: tuple[Collective, ...] = ()
    frames: tuple[str, ...] = ()  # the innermost frames of the main thread
    stacks: str = ""  # all threads: Python frames, and native ones where a tool was installed
    silent_s: float = 0.0  # s since its last heartbeat, when it did not answer; 0: it answered
    flight_record: str = ""  # what it called in its groups, packed by the SDK; "": not known
    process: str = ""  # how the kernel lists its process: `its process is stopped (T)`; "": not known


@dataclass(frozen=True, slots=True)
class Window:
    """Batches `first` up to, not including, `end`, by their index in the endless order of the data."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A numeric anomaly: states of `step` or more steps, of `generation` or an earlier one, are untrusted."""

    step: int
    generation: int
    stop: bool = False  # the job's policy is to end at it, not to roll back
    corrupt: bool = False  # replicas of the state differed: no data is to blame, and none is skipped
    last_step: int = 0  # states of more steps are trusted again; 0: none is


@dataclass(frozen=True, slots=True)
class Placement:
    """One seat of a generation: the member that is rank `rank`, and its place on a node."""

    rank: int
    member: str
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class Source:
    """Which rank provides one shard of the state, or one share of its bytes, to the ranks that need it."""

    shard: str
    tier: Tier
    rank: int  # it holds the shard, or reads it from an arena on its own node
    member: str = ""  # MEMORY, PEER, CHECKPOINT: whose arena on that node; "": no arena is read
    share: int = 0  # index of the share that it reads
    shares: int = 1  # how many equal shares the shard's bytes are cut into


@dataclass(frozen=True, slots=True)
class Resume:
    """A generation's restore point: where its first step gets its state. `step` steps are complete."""

    tier: Tier
    step: int
    rank: int = NO_RANK  # the rank that holds, or reads, the state and gives it to the others
    member: str = ""  # whose arena, on the node of `rank`, holds it; "": no arena is read
    checkpoint: str = ""  # CHECKPOINT: its id
    reason: str = ""
    sources: tuple[Source, ...] = ()  # if more than one; then `tier`, `rank` are the farthest's
    born: int = 0  # origin generation, which computed it: equal step and origin, one state
    reshard: bool = False  # the checkpoint has another layout: each rank reads its own part from storage
    skip: tuple[Window, ...] = ()  # data that no rank trains on, by policy, ascending
    digest: str = ""  # `reshard`: blake3 of the checkpoint's manifest, hex


@dataclass(frozen=True, slots=True)
class Generation:
    """One membership of a job: which member is which rank. Numbers only grow within a job."""

    job: str
    number: int
    term: int  # leader term in which it was decided
    seats: tuple[Placement, ...]  # by rank, without gaps
    store: str  # TCPStore of rank 0, host:port, where ranks meet; "": ranks start, none has met
    master: str  # host:port for torchrun's environment (a plain script's own store)
    resume: Resume
    reason: str
    restarts: int = 0  # failures that the job has survived before it
    cut_at: int = 0  # sharding epoch: the generation since which state is cut this way; 0: since the first

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return len(self.seats)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the core concluded from the evidence of a failure: extent, ranks and nodes hit, cause."""

    job: str
    scope: Scope
    cause: Cause
    nodes: tuple[str, ...]  # of the failed members
    members: tuple[str, ...]
    ranks: tuple[int, ...]
    step: int  # the step in which the first failure happened
    evidence: tuple[str, ...]
    whose: str = "cluster"  # who caused it: script, cluster, or plan (nothing failed)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done about a verdict, and why."""

    job: str
    strategy: Strategy
    drop: tuple[str, ...]  # members that leave the job
    add: tuple[str, ...]  # members that take their ranks, as far as known yet
    reason: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One recovery, from the failure to the first step that all ranks complete again.

    `phases_s` holds the phases reached so far, in s: detect, decide, fence, reform, restore, first_step
    (of a plain script: its first output)."""

    id: int
    job: str
    verdict: Verdict
    plan: Plan
    generation_before: int
    generation_after: int = 0  # 0: not formed yet
    lost_steps: int = 0  # steps that some rank had completed and that are run again
    outcome: str = "open"  # open, recovered, failed, stopped (by people)
    phases_s: tuple[tuple[str, float], ...] = ()
    restored: str = ""  # tier of the state, and which part came from where
    inexact: str = ""  # what differs from a run without failure: random numbers, a rank's buffers


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint as etcd holds it. `published`: its manifest is on storage, too."""

    job: str
    id: str  # "<step>-<generation>"
    step: int
    generation: int
    kind: str  # full, incremental
    base: str  # id of the full checkpoint that started its base
    manifest_digest: str  # blake3 of the manifest's bytes, hex
    bytes_total: int
    bytes_written: int  # what had to be written: without chunks that were on storage already
    versions: tuple[tuple[int, int], ...]  # version vector: (rank, step)
    published: bool = False
    bad: str = ""  # why it must not be used; "": it is good
    shards: tuple[str, ...] = ()  # ids of the shards it holds, sorted; (): replicated state, "all"
    suspect: str = (
        ""  # why others are preferred to it, although it may be used; "": nothing speaks against it
    )


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """A replica of another node's snapshot, held whole in memory by the node that reports it."""

    member: str
    job: str
    rank: int
    shard: str
    step: int
    generation: int
    digest: str = ""  # sent with it by the agent of its rank (`restore/vouching.py`); "": none


@dataclass(frozen=True, slots=True)
class Partner:
    """A replica holder: the node to which the snapshots of `member` are copied."""

    member: str
    node: str
    address: str  # host:port of the peer service of that node's agent


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Another node's agent, as its peers dial it."""

    node: str
    address: str  # host:port of its peer service


@dataclass(frozen=True, slots=True)
class PeerSight:
    """What one node found when it dialled another: `failed` of `tries` connections got no answer."""

    node: str
    tries: int
    failed: int
    reason: str = ""  # of the last failed try


@dataclass(frozen=True, slots=True)
class LemonRecord:
    """One node's history of failures, as etcd keeps it. Times are Unix times in s."""

    node: str
    score: float  # sum of weighted failures, decayed, as of `at_s`
    at_s: float
    until_s: float = 0.0  # end of its quarantine; 0: it has none
    reason: str = ""
    causes: tuple[tuple[str, int], ...] = ()  # failures that began on this node, by cause


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Marks that people and faults have put on a node. They outlive leaders, and restarts of the node."""

    node: str
    cordoned: str = ""  # why it takes no new ranks; "": it takes them
    devices: tuple[tuple[str, str], ...] = ()  # (device, why it takes no ranks)
    drain_by_s: float = 0.0  # Unix time by which people want it drained; 0: no drain asked for, or done
    drain_forced: bool = False  # drain it even when that parks a job
    bad_parts: tuple[BadPart, ...] = ()  # what a check of the node has found


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node as the last leader recorded it, so that the next one can replace it when it is lost."""

    node: str
    state: str
    reason: str = ""
    address: str = ""  # "": not known
    domain: str = ""  # failure domain


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as etcd keeps it for the next leader."""

    job: str
    phase: JobPhase
    reason: str
    incidents: int = 0  # number of the newest incident
    failures_seen: tuple[tuple[str, int], ...] = field(default=())  # (`verdicts.repeat_key`, times)
    faults: tuple[Fault, ...] = ()  # numeric anomalies: states that are not trusted
    skips: tuple[Window, ...] = ()  # data that no rank trains on, by policy, ascending
    pause: str = ""  # why people want it paused; "": they do not
    cut_words: tuple[str, ...] = ()  # shard ids of one replica, by rank, if all replicas hold the same
    planned: int = 0  # how many of its incidents were planned changes, without a failure
    suspect_states: tuple[Fault, ...] = ()  # states in which replicas differed, which was only reported
