"""The words of the house as frozen records: what the core knows and what it decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.core.records.words import (
    NO_RANK,
    NO_STEP,
    ON_NAN,
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
    "ON_NAN",
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
    """What a user asked for. Counts are per job unless named otherwise; storage "" means none."""

    job: str
    argv: tuple[str, ...]  # script and its arguments
    cwd: str
    env: tuple[tuple[str, str], ...] = ()
    nnodes_min: int = 1
    nnodes_max: int = 1
    nproc_per_node: int = 1
    spares_per_node: int = 0
    max_restarts: int = 3  # times the same exception at the same step is tried again
    storage: str = ""  # fsspec URL
    snapshot_every: int = 10  # steps between copies into the agent's memory
    checkpoint_every: int = 100  # steps between durable checkpoints, a multiple of snapshot_every
    full_every: int = 1000  # steps between checkpoints that open a new base
    module: bool = False  # argv[0] is a module name (python -m)
    no_python: bool = False  # argv[0] is a program
    checkpoint_every_s: float = 0.0  # s between durable checkpoints besides the steps; 0: by steps alone
    checkpoint_auto: bool = False  # Young/Daly choose the interval from the observed MTBF and costs
    keep_last: int = 0  # newest checkpoints that are kept; 0: all
    keep_every: int = 0  # the first checkpoint of every so many steps is kept for ever; 0: none
    codec: str = "auto"  # none, zstd, auto (chosen from the measured upload speed)
    mirror: str = ""  # a second fsspec URL that holds every checkpoint too; "": none
    commit_when: str = "both"  # with a mirror: committed when "both" hold it, or when the "first" does
    replicas: int = 1  # copies of each snapshot in the memory of nodes outside its own failure domain
    scrub_every_s: float = 3600.0  # s between two background readings of the newest checkpoint; 0: none
    replica_nodes: int = 1  # nodes that hold one replica of the model: they stand or fall together
    on_nan: str = "rollback"  # a loss that is NaN or Inf: go back to an older state, "stop", or "ignore"
    nan_skip_window: int = 0  # batches that are left out after such a roll back, the faulty one the last
    tensor_parallel: int = 1  # ranks that share each layer; with the next two: the ranks of one replica
    pipeline_parallel: int = 1  # stages of layers
    context_parallel: int = 1  # parts of the sequence

    @property
    def replica_ranks(self) -> int:
        """How many ranks hold one replica of the model, by the layout; 1: it says nothing of replicas."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of the end of one member, as evidence for a verdict."""

    cause: Cause
    message: str  # one line for people
    exit_code: int | None = None
    signal: int | None = None
    step: int = NO_STEP  # the step it was in
    exception: str = ""  # type name, when the script raised
    traceback: str = ""
    age_s: float = 0.0  # how long before the report the injury is believed to have happened


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as its agent sees it now. Level-triggered: the newest status replaces the last."""

    member: str
    job: str
    phase: MemberPhase
    elastic: bool = False  # the SDK has spoken
    role: Role = Role.RANK
    generation: int = 0
    rank: int = NO_RANK
    step: int = NO_STEP  # the step it is in
    held_step: int = NO_STEP  # READY, FINISHED: its state is clean with this many steps completed
    pid: int = 0
    store: str = ""  # host:port of the TCPStore that this member serves to its peers
    state_bytes: int = 0  # size of its tracked state, 0 until known
    snapshot_step: int = NO_STEP  # newest READY slot of its arena; outlives the process
    snapshot_generation: int = 0
    failure: Failure | None = None  # RAISED, EXITED
    no_room: str = ""  # why it has no shared memory for snapshots, with the mend
    shard: str = ""  # which part of the state it holds: equal words, equal state; "": not known yet
    snapshot_before: int = NO_STEP  # the older READY slot of its arena, of the same generation
    former_step: int = NO_STEP  # the other READY slot, when an earlier generation made it
    former_generation: int = 0
    stalled_s: float = 0.0  # RUNNING: so long without progress, past its deadline; 0: it gets on
    activity: str = (
        ""  # in which meanwhile: forward, optimizer, a declared phase; output: written, by a plain script
    )
    held_generation: int = 0  # the newest generation in which its state was put in place; 0: none, not told
    ended_step: int | None = None  # READY: it has ended the bodies of so many steps, and none may be left out


@dataclass(frozen=True, slots=True)
class Collective:
    """How far one process group of a rank is: the last collective that it has entered."""

    group: str
    sequence: int  # of the group's collectives entered, this one the last
    ended: int = -1  # how many of them are known to be over; -1: not known
    operation: str = ""  # gloo:all_reduce; "": not known
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one rank stood when its stacks were collected."""

    member: str
    rank: int
    step: int
    activity: str
    since_s: float  # so long without a step, or a change of phase
    stalled: bool  # that is past its own deadline
    collectives: tuple[Collective, ...] = ()
    frames: tuple[str, ...] = ()  # of the main thread, innermost first, the first few
    stacks: str = ""  # every thread, of Python and, where there was a tool, native
    silent_s: float = 0.0  # it did not answer, and has not beaten for so long; 0: it answered


@dataclass(frozen=True, slots=True)
class Window:
    """Batches `first` up to, not including, `end` of the endless order."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """States with `step` steps and more that `generation`, or an earlier one, computed are not trusted."""

    step: int
    generation: int
    stop: bool = False  # the job ends at it, by policy


@dataclass(frozen=True, slots=True)
class Placement:
    """One seat of a generation."""

    rank: int
    member: str
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class Source:
    """Who gives one shard of the state (or one share of its bytes) to the ranks that need it."""

    shard: str
    tier: Tier
    rank: int  # has it, or reads it from an arena on its own node
    member: str = ""  # MEMORY, PEER, CHECKPOINT: in whose arena, on the node of `rank`
    share: int = 0  # which share of the shard's bytes it reads
    shares: int = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a generation's first step gets its state. `step` steps are complete."""

    tier: Tier
    step: int
    rank: int = NO_RANK  # the rank that has, or reads, the state and gives it to the others
    member: str = ""  # MEMORY: whose arena holds the snapshot (on the node of `rank`)
    checkpoint: str = ""  # CHECKPOINT: its id
    reason: str = ""
    sources: tuple[Source, ...] = ()  # when there is more than one; `tier` and `rank` are the farthest's
    born: int = 0  # the generation that computed it: shards of equal step and birth are one state
    reshard: bool = False  # CHECKPOINT of another layout: each rank reads its own part from the storage
    skip: tuple[Window, ...] = ()  # data that is left out by policy, ascending
    digest: str = ""  # `reshard`: blake3 of the checkpoint's manifest, hex


@dataclass(frozen=True, slots=True)
class Generation:
    """One formed set of process groups. The number only grows within a job."""

    job: str
    number: int
    term: int
    seats: tuple[Placement, ...]  # by rank; world size is their number
    store: str  # host:port of the TCPStore to meet at; "" until known
    master: str  # host:port for torchrun's environment (a plain script's own store)
    resume: Resume
    reason: str
    restarts: int = 0  # failures survived so far
    cut_at: int = 0  # state in shards is cut as in this generation and all since; 0: as in the first

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return len(self.seats)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judged failure: its extent, whom it hit, why, and on what evidence."""

    job: str
    scope: Scope
    cause: Cause
    nodes: tuple[str, ...]
    members: tuple[str, ...]
    ranks: tuple[int, ...]
    step: int
    evidence: tuple[str, ...]
    whose: str = "cluster"  # whose doing it is taken to be: script, cluster, plan (nothing failed)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done about a verdict, and why."""

    job: str
    strategy: Strategy
    drop: tuple[str, ...]  # members that leave
    add: tuple[str, ...]  # members that take their ranks, as far as known yet
    reason: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One failure from injury to first committed step. Phases in s: detect, decide, fence, reform,
    restore, first_step (of a script without the SDK: its first output); only those reached so far."""

    id: int
    job: str
    verdict: Verdict
    plan: Plan
    generation_before: int
    generation_after: int = 0
    lost_steps: int = 0  # completed somewhere before the failure, and done again
    outcome: str = "open"  # open, recovered, failed, stopped (by people)
    phases_s: tuple[tuple[str, float], ...] = ()
    restored: str = ""  # where the state came from: its tier, and which of it from where
    inexact: str = ""  # what is not as it would be had nothing failed: random numbers, buffers of a rank


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint that etcd holds. `published` when its manifest is on storage as well."""

    job: str
    id: str  # "<step>-<generation>"
    step: int
    generation: int
    kind: str  # full, incremental
    base: str  # id of the full checkpoint that opened its base
    manifest_digest: str  # blake3 of the manifest's bytes, hex
    bytes_total: int
    bytes_written: int
    versions: tuple[tuple[int, int], ...]  # version vector: (rank, step)
    published: bool = False
    bad: str = ""  # why it is not to be used, "" when good
    shards: tuple[str, ...] = ()  # the words of the shards it holds, sorted; (): replicated state, "all"


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """A snapshot of another node's member, held whole in the memory of the node that reports it."""

    member: str
    job: str
    rank: int
    shard: str
    step: int
    generation: int
    digest: str = ""  # that came with it from the agent of its rank (`core.vouching`); "": none did


@dataclass(frozen=True, slots=True)
class Partner:
    """Where the snapshots of a member are to be copied to."""

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
    """What one node found when it dialled another: `failed` of `tries` got no answer."""

    node: str
    tries: int
    failed: int
    reason: str = ""  # of the last failure


@dataclass(frozen=True, slots=True)
class LemonRecord:
    """The history of one node's failures, as etcd keeps it. Times are Unix times in s."""

    node: str
    score: float  # of its failures, decayed, as of `at_s`
    at_s: float
    until_s: float = 0.0  # quarantined until then; 0: it is not
    reason: str = ""
    causes: tuple[tuple[str, int], ...] = ()  # failures that began there, by cause


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """What people and faults have marked a node with; it outlives leaders and the node's own lives."""

    node: str
    cordoned: str = ""  # why it takes no new seats; "": it does
    devices: tuple[tuple[str, str], ...] = ()  # devices that take no ranks, and why
    drain_by_s: float = 0.0  # people want it free of ranks by then, a Unix time; 0: they do not, or it is
    drain_forced: bool = False  # even when that parks a job


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node as the last leader wrote it down: what is lost can be replaced by the next."""

    node: str
    state: str
    reason: str = ""
    address: str = ""  # "": not known
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """What lies in etcd and cannot be taken up. `whole`: all of its job, of which nothing is touched."""

    key: str
    reason: str
    job: str = ""  # whose it is; "": no job's
    whole: bool = False


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as etcd keeps it, for the next leader."""

    job: str
    phase: JobPhase
    reason: str
    incidents: int = 0
    failures_seen: tuple[tuple[str, int], ...] = field(default=())  # (exception@step, times)
    faults: tuple[Fault, ...] = ()  # states that are not trusted
    skips: tuple[Window, ...] = ()  # data that is left out by policy, ascending
    pause: str = ""  # why people want it paused; "": they do not
    cut_words: tuple[str, ...] = ()  # shards of one replica, by rank, where each was seen to hold the same
    planned: int = 0  # of its incidents: changes in which nothing failed
