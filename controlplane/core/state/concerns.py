"""Define the parts of a job's state, by concern: plain mutable records with no decisions in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_STEP, JobPhase
from controlplane.core.state.cadence import Costs
from controlplane.core.state.durability_memory import Keeping

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.evidence import Evidence
    from controlplane.core.records.model import (
        CheckpointRecord,
        Fault,
        Generation,
        Incident,
        Partner,
        Resume,
        Tier,
        Window,
    )
    from controlplane.core.state.cadence import Choice
    from controlplane.core.state.inquiries import Look, Looks
    from controlplane.core.state.pulse import Pulse
    from controlplane.core.state.resize import Resize
    from controlplane.core.state.saving import Ask, Collecting, Saving


@dataclass(slots=True)
class Clock:
    """When (s) an incident reached what: the ends of its phases."""

    injured: float = 0.0  # believed time of the injury
    heard: float = 0.0  # the core heard of it
    judged: float = 0.0  # verdict and plan; orders to stop leave in the same step
    stored: float = 0.0  # the generation that mends it is in etcd


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends, while etcd is being told."""

    phase: JobPhase
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What our own order put into a member's arena."""

    order: tuple[str, ...]  # its key
    tier: Tier
    step: int
    source: str = ""  # PEER: whose snapshot
    keeper: str = ""  # PEER: the node that kept the copy
    checkpoint: str = ""
    doubted: bool = False  # PEER: nobody vouches for it


@dataclass(slots=True)
class Restoring:
    """A resume that is being brought in place: `waits` are the orders not answered yet."""

    resume: Resume
    waits: dict[tuple[str, ...], tuple[Effect, Answer]]
    keepers: tuple[str, ...] = ()  # nodes whose copies it needs
    again_at: float = 0.0  # when the orders are looked at again
    streams: int = -1  # of the machine, when they were


@dataclass(slots=True)
class Generations:
    """The generations of a job: which etcd holds, which is on its way, and how state is cut in them."""

    known: dict[int, None] = field(default_factory=dict)  # generation numbers that etcd holds or held
    number: int = 0  # highest generation number given to any Store
    formed: int = 0  # highest number stored, or on its way, with a store to meet at
    storing: Generation | None = None  # on its way into etcd
    lines: dict[int, tuple[int, int]] = field(default_factory=dict)  # generation -> (step, born) of its start
    roll: tuple[int, frozenset[str]] = (0, frozenset())  # (a generation, its members)
    form_by: float = 0.0
    launched_at: float = 0.0
    cut_at: int = 0  # the generation in which the number of ranks changed last
    cut_words: tuple[str, ...] = ()  # the shards of one replica, by rank, once they were seen to repeat
    cut_words_told: tuple[str, ...] = ()  # as etcd was asked to keep them
    onward: bool = False  # its ranks stand at the barrier of another elastic function than before
    letting_go: tuple[int, str] = (0, "")  # (generation, why): once etcd knows, its ranks return from it


@dataclass(slots=True)
class Recovery:
    """Failures of a job: evidence, the open incident and its plan, and what was counted."""

    unjudged: list[Evidence] = field(default_factory=list)  # evidence not judged yet
    evidence: list[Evidence] = field(default_factory=list)  # of the open incident
    incident: Incident | None = None
    planned: int = 0  # of its incidents: changes that people or a policy wanted, in which nothing failed
    over: str = ""  # why it trains, when it does so after an incident
    inexact: dict[str, None] = field(default_factory=dict)  # what is not as if nothing had failed
    clock: Clock = field(default_factory=Clock)
    relaunch: bool = False  # the open incident starts every rank again
    stop_by: float = 0.0
    interrupted: tuple[int, float] = (0, 0.0)  # (generation, since when) that was told to stop
    halted: tuple[float, int, int] | None = None  # when (s) all were told to leave which generation, on how
    # many streams since the leader began
    broken_since: float | None = None
    looks: Looks | None = None  # which nodes reach each other, while that is asked
    incidents: int = 0
    unfinished: int = 0  # the incident that was open when a former leader ended, until its ranks train on
    failures_seen: dict[str, int] = field(default_factory=dict)
    counted: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # (failure, generation): ranks
    spare_failures: dict[str, int] = field(default_factory=dict)  # by node
    node_restarts: list[float] = field(default_factory=list)  # when (s) nodes came back without its ranks
    phases: dict[str, float] = field(default_factory=dict)  # of the members' restart, slowest of each
    returned: bool = False  # it is started again because of what befell it behind its function
    stalled: dict[str, None] = field(default_factory=dict)  # members past their deadline, as agents say
    hang: Look | None = None  # the look at where its ranks stand
    hang_rounds: int = 0  # such looks begun so far
    incidents_before: int = 0  # those before that
    watched: dict[str, int] = field(default_factory=dict)  # the rank last found to be waited for, by what for


@dataclass(slots=True)
class Restore:
    """Where a job's state can come from, and what is being brought in place."""

    shards: dict[int, str] = field(default_factory=dict)  # rank -> what it holds in this layout
    restoring: Restoring | None = None  # LOADING: what was chosen, and the orders that bring it in place
    answered: dict[str, Answer] = field(default_factory=dict)  # member -> the newest such order that is done
    fetch_tries: dict[tuple[str, int], int] = field(default_factory=dict)  # failed, by the key in `spoiled`
    fetch_again_at: float = 0.0
    load_trouble: str = ""  # why the checkpoint chosen could not be loaded yet
    failed_sources: dict[tuple[str, int], str] = field(
        default_factory=dict
    )  # snapshots that would not restore,
    # by (member, or member@node for a copy at a peer, step)
    vouches: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict)  # by member that this leader
    # has heard: (generation, step) -> what its agent says that the snapshot hashes to
    refuted: dict[tuple[str, str, int, int], None] = field(default_factory=dict)  # (node, member, generation,
    # step): copies that are not believed, as was told
    altered: dict[str, None] = field(default_factory=dict)  # copies that were not what was vouched for: told
    # with the state that is chosen instead
    known_step: int = NO_STEP  # newest step known to be completed anywhere
    newest_step: int = NO_STEP  # that any member was seen in


@dataclass(slots=True)
class Replicas:
    """Copies of a job's snapshots on other nodes."""

    replan: bool = True  # partners are to be looked at again
    partners: dict[str, tuple[str, ...]] = field(default_factory=dict)  # shard -> nodes that keep copies
    leftovers: bool = True  # nodes may keep copies of generations that are over
    leftovers_at: int = NO_STEP  # the release at which that was looked at last
    replicated: dict[str, tuple[Partner, ...]] = field(default_factory=dict)  # owner's node -> as ordered
    alone: str = ""  # why some shard has too few copies


@dataclass(slots=True)
class Snapshots:
    """Which snapshots a job's ranks hold, and which of them all hold."""

    held: dict[int, tuple[int, ...]] = field(default_factory=dict)  # rank -> its slots, this generation
    released: int = NO_STEP
    retold: tuple[int, int] = (-1, -1)  # streams and seats as they were when all had been told of it
    behind: int = NO_STEP  # newest snapshot up to where this generation begins: older slots may go, or no
    # rank finds room
    lapse_step: int = NO_STEP  # whoever shows this step may have found no room for a snapshot
    paced: tuple[float, int] | None = None  # when (s), and in which step, the ranks' pace begins to be
    # measured: the last release, or the generation's begin; None: neither in this leader's sight
    voided: int = NO_STEP  # no unreleased snapshot up to this step will be released any more


@dataclass(slots=True)
class Checkpoints:
    """Checkpoints of a job: what etcd holds, what is in flight, and what is due."""

    records: dict[str, CheckpointRecord] = field(default_factory=dict)  # what etcd holds
    begun: int = 0  # step of the newest checkpoint begun
    begun_at: float = -1.0  # when (s) that was; -1: none yet, and the job has not run
    skipped: int = 0  # step of the newest checkpoint that was due and skipped
    skipped_at: float = -1.0
    commits: int = 0  # checkpoints committed in this leader's sight
    pulses: dict[str, Pulse] = field(default_factory=dict)  # what it owes while it trains
    savings: dict[str, Saving] = field(default_factory=dict)  # in flight, by id, in the order they began
    asks: dict[tuple[str, str], Ask] = field(default_factory=dict)  # by (member, request)
    costs: Costs = field(default_factory=Costs)
    keeping: Keeping = field(default_factory=Keeping)
    choice: Choice | None = None  # the interval that was chosen, and told, last
    watched_at: float = 0.0  # since when (s) this leader has seen it run
    collecting: Collecting | None = None
    full_owed: bool = False  # a full checkpoint gives way to a collection: no further one before it
    uncollected: tuple[str, ...] = ()  # marked, and could not be taken off the storage at the last try
    collect_again_at: float = 0.0  # they are tried again then, or with the next ones that are to go
    scrubbing: tuple[str, str] | None = None  # (checkpoint, node)
    scrubbed_at: float = -1.0
    final_by: float | None = None
    final_tried: bool = False
    wanted_now: bool = False  # people wait for a checkpoint that has not begun


@dataclass(slots=True)
class Places:
    """Planned changes of a job's places, and what people want of it."""

    resize: Resize | None = None  # a planned change of places under way
    resize_at: float = 0.0  # no other one before (s)
    leave_at: float = 0.0  # nor is a drained node left before (s): the state could not be made durable
    unsaved: int = 0  # so often in a row
    short_since: float | None = None  # since when (s) dead seats wait for a node
    gathered_at: float | None = None  # since when the minimum of nodes is there
    pause: str = ""  # why people want it paused; "": they do not


@dataclass(slots=True)
class Numbers:
    """What numeric anomalies have left behind: states not trusted, data left out."""

    faults: tuple[Fault, ...] = ()  # states that are not trusted
    skips: tuple[Window, ...] = ()  # data that is left out by policy
    on_fault: str = "rollback"  # what is done about the newest fault
