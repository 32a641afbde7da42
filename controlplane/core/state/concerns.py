"""Define the parts of a job's state, one record per concern. Mutable records without decisions.

Times are in s of the core's clock, unless a comment says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_STEP, JobPhase
from controlplane.core.state.cadence import CheckpointCosts
from controlplane.core.state.durability_memory import DurabilityRecord

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.evidence import Evidence, ReplayAnswer, ReplicasReported
    from controlplane.core.records.model import (
        Cause,
        CheckpointRecord,
        Fault,
        Generation,
        Incident,
        Partner,
        Placement,
        Resume,
        Tier,
        Window,
    )
    from controlplane.core.state.cadence import CadenceChoice
    from controlplane.core.state.inquiries import BarrierInquiry, BreakInquiry, HangInquiry, PeerDialRound
    from controlplane.core.state.pulse import Pulse
    from controlplane.core.state.resize import Resize
    from controlplane.core.state.saving import CheckpointRequest, Collecting, Saving


@dataclass(slots=True)
class Clock:
    """When (s) an incident reached the ends of its phases."""

    injured: float = 0.0  # estimated time of the failure
    learned: float = 0.0  # the core learned of it
    judged: float = 0.0  # verdict and plan were made; orders to stop leave in the same step
    stored: float = 0.0  # etcd holds the generation that resolves it; 0: not yet


@dataclass(slots=True)
class Noticing:
    """How a job's failures were noticed in this leader term."""

    times: dict[Cause, int] = field(default_factory=dict)
    after_s: dict[Cause, float] = field(default_factory=dict)  # from failures to their reports, all together
    # Silences (s) of nodes that lived and were given up with its ranks; the node came back after each.
    mistaken_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends, while that is being written to etcd."""

    phase: JobPhase
    ok: bool  # it finished, and did not fail or get stopped
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Load or Fetch order of ours put into a member's arena."""

    order: tuple[str, ...]  # the key of the order: (kind, node, member, ...)
    tier: Tier
    step: int  # of the state
    source: str = ""  # PEER: the member whose snapshot it is
    holder: str = ""  # PEER: the node that kept the replica
    checkpoint: str = ""  # CHECKPOINT: its id
    doubted: bool = False  # PEER: nobody vouches for it


@dataclass(slots=True)
class Restoring:
    """A restore point whose state is being brought to its readers. `waits`: orders not answered yet, by
    key."""

    resume: Resume
    waits: dict[tuple[str, ...], tuple[Effect, Answer]]
    holders: tuple[str, ...] = ()  # nodes whose replicas it needs
    again_at: float = 0.0  # the orders are checked again then
    streams: int = -1  # `ClusterState.streams` when they were sent: a new stream may need them again


@dataclass(slots=True)
class Generations:
    """The generations of a job: which etcd holds, which is being written, and how state is divided into
    shards."""

    known: dict[int, None] = field(default_factory=dict)  # numbers that etcd holds or held
    number: int = 0  # highest number given to any write, whether or not etcd took it
    formed: int = 0  # highest number, stored or being stored, of a generation with a TCPStore
    storing: Generation | None = None  # the generation being written to etcd
    # Number -> (step, origin generation) from which that generation started.
    lines: dict[int, tuple[int, int]] = field(default_factory=dict)
    members_of: tuple[int, frozenset[str]] = (0, frozenset())  # cache: (a generation, its members)
    form_by: float = 0.0  # ranks of the newest generation must train by then
    launched_at: float = 0.0  # when its processes were started
    # State is divided into shards in the same way since this generation; 0: since the first.
    sharding_epoch: int = 0
    # Shard ids of one replica, by rank, once all replicas were seen to hold the same.
    replica_shard_ids: tuple[str, ...] = ()
    replica_shard_ids_stored: tuple[str, ...] = ()  # `replica_shard_ids` as last written to etcd
    onward: bool = False  # its ranks are at the barrier of a later elastic function
    # (generation, why): its ranks may return from their function once etcd holds that; 0: none.
    letting_go: tuple[int, str] = (0, "")

    @property
    def storing_group(self) -> Generation | None:
        """The generation being written to etcd, if its ranks will train in it: not a mere launch."""
        return self.storing if self.storing is not None and self.storing.store else None


@dataclass(slots=True)
class Recovery:
    """Failures of a job: evidence, the open incident and its plan, and counters."""

    unjudged: list[Evidence] = field(default_factory=list)  # new evidence, not part of a verdict yet
    evidence: list[Evidence] = field(default_factory=list)  # all evidence of the open incident
    incident: Incident | None = None  # the open one; None: there is none
    planned: int = 0  # how many of its incidents were planned changes, without a failure
    over: str = ""  # the reason shown while it trains after an incident
    inexact: dict[str, None] = field(default_factory=dict)  # what differs from a run without failures
    clock: Clock = field(default_factory=Clock)
    noticing: Noticing = field(default_factory=Noticing)
    relaunch: bool = False  # the open incident starts all ranks again
    stop_by: float = 0.0  # survivors must be at the barrier by then
    # (generation, since when): its members were ordered to stop at once, not at a step boundary; 0: none.
    interrupted: tuple[int, float] = (0, 0.0)
    # (when, generation, ClusterState.streams) of the last Interrupt, if every node got it at once.
    halted: tuple[float, int, int] | None = None
    # Since when a collective is broken and no dead rank explains it; None: none is.
    broken_since: float | None = None
    sought_at: float = -math.inf  # when (s) idle nodes were last sought for its dead ranks
    looks: PeerDialRound | None = None  # the round in which its nodes dial each other
    incidents: int = 0  # number of the newest incident
    unfinished: int = 0  # the incident that a former leader left open, until all ranks train again; 0: none
    # `verdicts.repeat_key` -> how often it happened.
    failures_seen: dict[str, int] = field(default_factory=dict)
    # (repeat key, generation) -> ranks that failed so.
    counted: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    spare_failures: dict[str, int] = field(default_factory=dict)  # node -> spares that died there
    # When, in the last hour, nodes came back without its ranks.
    node_restarts: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)  # phase -> s, of the slowest member
    returned: bool = False  # it is started again after a failure that came after its function had returned
    # Members past their deadline, as their agents report.
    stalled: dict[str, None] = field(default_factory=dict)
    hang: HangInquiry | None = None  # the inquiry into who holds up the others
    broke: BreakInquiry | None = None  # the inquiry into a break that may be a mismatch
    late: BarrierInquiry | None = None  # what is asked about ranks that are late at a barrier
    hang_rounds: int = 0  # rounds of stack reports, or of flight records alone, ordered so far
    # Incidents that say nothing about the time between failures: planned, or not seen by this leader.
    incidents_before: int = 0
    # Why ranks are waited for -> a rank last seen to be; see `waiting.is_waited_for`.
    watched: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Restore:
    """Where a job's state can come from, and what is being brought in place."""

    # Rank -> shard id in the present sharding epoch; "?RANK": some shard, its id is not known.
    shards: dict[int, str] = field(default_factory=dict)
    restoring: Restoring | None = None  # LOADING: the restore point chosen, and its orders
    # What the last finished order put into a member's arena, by member.
    answered: dict[str, Answer] = field(default_factory=dict)
    # Failed fetches, by key in `failed_sources`.
    fetch_tries: dict[tuple[str, int], int] = field(default_factory=dict)
    fetch_again_at: float = 0.0  # failed fetches are tried again then
    load_trouble: str = ""  # why the chosen checkpoint could not be loaded yet; "": nothing is known
    # Why a snapshot could not be restored, so that it is not chosen again; by (member, or member@node for a
    # replica; step).
    failed_sources: dict[tuple[str, int], str] = field(default_factory=dict)
    # Member whose agent has spoken to this leader -> (generation, step) -> digest that the agent vouches for.
    vouches: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict)
    # (node, member, generation, step) of replicas that contradict their rank's agent; each is journaled once.
    refuted: dict[tuple[str, str, int, int], None] = field(default_factory=dict)
    # Fetched replicas that did not match their digest; named in the reason of the next restore point.
    altered: dict[str, None] = field(default_factory=dict)
    known_step: int = NO_STEP  # newest step that any rank is known to have completed
    newest_step: int = NO_STEP  # newest step that any member was seen in


@dataclass(slots=True)
class Replicas:
    """Replicas of a job's snapshots in the memory of other nodes."""

    replan: bool = True  # the replica holders must be chosen again
    waits: bool = False  # but not before nodes or ranks have reported that have not done so yet
    # Nodes that hold its replicas, by shard id.
    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    leftovers: bool = True  # nodes may keep replicas of generations that are over
    leftovers_at: int = NO_STEP  # `Snapshots.released` when that was last checked
    replicated: dict[str, tuple[Partner, ...]] = field(default_factory=dict)  # owner's node -> its last order
    alone: str = ""  # why some shard has too few replicas; "": none has


@dataclass(slots=True)
class Snapshots:
    """Which snapshots a job's ranks hold, and which of them all ranks hold."""

    # Steps in the slots of each rank, of this generation.
    held: dict[int, tuple[int, ...]] = field(default_factory=dict)
    released: int = NO_STEP  # newest step that all ranks hold, so that older slots may be overwritten
    # (ClusterState.streams, RankIndex.version) when every node was last known to have been sent `released`.
    sent_on: tuple[int, int] = (-1, -1)
    # Newest snapshot at or before the step with which this generation begins. Released before all ranks hold
    # a newer one: otherwise both slots of a rank could stay occupied by steps of earlier generations.
    newest_before_generation: int = NO_STEP
    # Of these, the newest that all ranks hold: no other one is released where parts differ and are copied.
    whole_before: int = NO_STEP
    lapse_step: int = NO_STEP  # a rank in this step or a later one may have no free slot: look at the job
    # (when, step) from which the ranks' pace is measured: the last release, or the start of the generation;
    # None: this leader saw neither.
    paced: tuple[float, int] | None = None
    by_ranks: bool = False  # the ranks agree what they overwrite: none waits for a Release
    # They keep steps from this one on for a checkpoint; None: this leader has not told them.
    kept_from: int | None = None
    voided: int = NO_STEP  # unreleased snapshots up to this step will never be whole: some rank has none


@dataclass(slots=True)
class Checkpoints:
    """Checkpoints of a job: what etcd holds, what is in flight, and what is due."""

    records: dict[str, CheckpointRecord] = field(default_factory=dict)  # what etcd holds, by id
    begun: int = 0  # step of the newest checkpoint that was begun
    begun_at: float = -1.0  # when that was; -1: none, and the job has not run
    skipped: int = 0  # step of the newest checkpoint that was due and not begun
    skipped_at: float = -1.0  # when that was; -1: never
    commits: int = 0  # checkpoints committed under this leader
    pulses: dict[str, Pulse] = field(default_factory=dict)  # how regularly they come, by duty
    savings: dict[str, Saving] = field(default_factory=dict)  # in flight, by id, oldest first
    asks: dict[tuple[str, str], CheckpointRequest] = field(
        default_factory=dict
    )  # requests by (member, request)
    costs: CheckpointCosts = field(default_factory=CheckpointCosts)
    keeping: DurabilityRecord = field(default_factory=DurabilityRecord)  # failures to keep the state
    choice: CadenceChoice | None = None  # interval by Young/Daly, as journaled last
    watched_at: float = 0.0  # since when this leader has seen it run
    collecting: Collecting | None = None  # the deletion of old checkpoints under way
    # A full checkpoint was put off for a collection: start no further collection before it.
    full_owed: bool = False
    uncollected: tuple[str, ...] = ()  # marked in etcd, but not deleted from storage at the last try
    collect_again_at: float = 0.0  # those are retried then, or together with the next ones
    scrubbing: tuple[str, str] | None = None  # (checkpoint, node that reads it)
    # Suspect checkpoints that are being marked in etcd, by id.
    judging: dict[str, None] = field(default_factory=dict)
    marking: tuple[str, str] | None = None  # (suspect checkpoint, node that marks it on the storage)
    mark_again_at: float = 0.0  # no mark is ordered before then: the storage did not take the last one
    marked: dict[str, None] = field(default_factory=dict)  # those that this leader has had marked, by id
    scrubbed_at: float = -1.0  # when the last scrub ended; -1: never
    final_by: float | None = None  # deadline of the checkpoint that the job's end waits for; None: not set
    final_tried: bool = False  # that checkpoint was begun once already
    wanted_now: bool = False  # people wait for a checkpoint that has not begun

    @property
    def asked(self) -> bool:
        """Whether some request has no answer yet."""
        return any(not ask.outcome for ask in self.asks.values())


@dataclass(slots=True)
class PlannedChanges:
    """Planned changes of which seats a job has, and what people want of it."""

    resize: Resize | None = None  # the planned change under way
    resize_at: float = 0.0  # no other planned change before then
    # Drained nodes are not left by a planned change before then: the state could not be made durable.
    leave_at: float = 0.0
    unsaved: int = 0  # planned changes in a row that were dropped for that reason
    short_since: float | None = None  # since when dead seats wait for a node; None: none does
    # Since when enough nodes are there for the job to start; None: they are not.
    gathered_at: float | None = None
    pause: str = ""  # why people want it paused; "": they do not
    swap_at: float = 0.0  # no slow node is swapped for a spare one before then
    swap_refused: str = ""  # why a finding gets no swap, as journaled last


@dataclass(frozen=True, slots=True)
class ReplicaDispute:
    """Replicas of the state that differ. `odd_seats`: the places of those to blame, as they were then.

    `answer`: what a replay of the step says of the cause. `awaits`: nothing is done before it is over."""

    report: ReplicasReported
    odd_seats: tuple[Placement, ...]
    answer: ReplayAnswer
    awaits: bool = False


@dataclass(slots=True)
class Numbers:
    """What numeric anomalies have left behind: states that are not trusted, data that is skipped."""

    faults: tuple[Fault, ...] = ()  # states that are not trusted
    skips: tuple[Window, ...] = ()  # data that no rank trains on, by policy, ascending
    suspect_states: tuple[Fault, ...] = ()  # states in which replicas differed, which was only reported
    on_fault: str = "rollback"  # what to do about the newest anomaly: rollback or stop
    # The newest reports of this leader's term that replicas differ, and that they agree; None: none.
    dispute: ReplicaDispute | None = None
    agreed: ReplicasReported | None = None
