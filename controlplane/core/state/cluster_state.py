"""Hold the state of one leader, and its only ways to act: effects, repeated orders, queued writes to etcd.

- Effects are collected in one list, which `Cluster.step` returns.
- `order` sends an order and repeats it for as long as a caller asks for it: messages may be lost.
- `store` queues a write. Each queue has one write on its way at a time, so that records reach etcd in the
  order in which they were decided, and a failed write is repeated with the same content.
- `touch` marks a job; `Cluster.step` drives all marked jobs before it returns."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import look_gap_s
from controlplane.core.records.words import TRANSITIONS
from controlplane.core.state.deadlines import Deadlines
from controlplane.core.state.findings import NodeListening
from controlplane.core.state.node_check import ChecksUnderWay, NodeCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.core.records.diagnosis import OpenFinding
    from controlplane.core.records.effects import Effect, Store
    from controlplane.core.records.events import NodeBeat
    from controlplane.core.records.model import (
        CheckpointRecord,
        Generation,
        Incident,
        JobPhase,
        LemonRecord,
        NodePlace,
        PeerCopy,
    )
    from controlplane.core.records.stores import Unread
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.findings import Finding, MassFailureGuard
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

MEMBERS_PER_TERM = 1_000_000
"""Each leader term has so many member numbers of its own, so that two leaders never give out one name."""
LEFT = "left"
"""The state that people are shown of a node that was drained and then ended. To the core it is lost."""

HEALTH_LAG_S = 0.1
"""Changes within so long (s) are assessed together."""
HEALTH_GAP_S = 1.0
"""Least time (s) between two assessments of health."""


@dataclass(slots=True)
class Drain:
    """A node is to be freed of ranks until `by` (s); then they are moved in any case."""

    reason: str
    by: float
    own: bool = False  # its agent asked for it: the node itself goes away
    force: bool = False  # even when that parks a job
    asked_at: float = 0.0  # s
    done: bool = False  # no rank is left on the node
    in_order: bool = False  # it was done while the node was connected: its end is expected
    delay_noted: str = ""  # what delays it, as journaled last
    asked_by_s: float = 0.0  # `by` as people asked for it, a Unix time; 0: they did not


@dataclass(frozen=True, slots=True)
class StepWalk:
    """All members of a node in the order of its last whole heartbeat, all of one job.

    `members`: each with its `words` at that time. `held`: the `held_step` of each rank that trains; None for
    others, whose steps must not move."""

    job: Job
    generation: Generation
    seating_version: int
    members: list[tuple[Member, int]]
    held: list[int | None]
    names: frozenset[str]


@dataclass(slots=True)
class Node:
    """One node. `state`: expected (known from etcd only), up, suspect (its stream broke), lost."""

    name: str
    state: str = "expected"
    reason: str = ""
    incarnation: int = 0  # of its agent; the messages of any other one are dropped
    launcher: str = ""  # incarnation of its launcher: the same launcher has the same rank processes
    address: str = ""  # host at which other nodes reach its ranks
    slots: int = 0  # how many ranks fit on it
    port: int = 0  # a free port that it offers for a plain script's rendezvous
    seq: int = -1  # sequence number of its newest heartbeat
    top: int = -1  # sequence number of its newest heartbeat or report
    last_contact_at: float = 0.0  # when (s) its agent last sent anything
    bad_devices: dict[str, str] = field(default_factory=dict)  # device -> why, as the agent reports
    listening: NodeListening = field(default_factory=NodeListening)
    domain: str = ""  # failure domain; never "" once it has joined
    peer: str = ""  # host:port of its peer service, "": none
    copies: tuple[PeerCopy, ...] = ()  # replicas that it keeps of other nodes' snapshots
    version: str = ""  # of its agent; "": not sent
    knows_no_marks_in: int = 0  # incarnation of its agent that did not know how to mark a checkpoint
    up_since: float = 0.0  # since when (s) its stream is up
    cordoned: str = ""  # why it takes no new ranks; "": it takes them
    drain: Drain | None = None  # it is being drained, or has been
    excluded: dict[str, str] = field(default_factory=dict)  # device -> why: ranks died on it again and again
    deaths: dict[int, list[float]] = field(default_factory=dict)  # local rank -> when (s) ranks died there
    proved_at: float = -1.0  # when (s) it last answered a probe, or silent for a reason of ours; -1: never
    lost_at: float = -1.0  # when (s) it was given up; -1: never
    returns: list[float] = field(default_factory=list)  # when (s) it came back, within the window
    held_until: float = 0.0  # hold-down: it takes no new ranks before (s)
    held_why: str = ""
    cut: str = ""  # why it counts as cut from its peers; "": it is not
    unreached: tuple[str, ...] = ()  # the peers that it did not reach
    failure_history: LemonRecord | None = None
    unfit_since: float = -1.0  # since when (s) it should be replaced; -1: it need not be
    replace_again_at: float = 0.0  # no replacement is asked for before (s)
    unreplaced: str = ""  # why it could not be replaced; "": nothing is known to prevent it
    replaced: bool = False  # the platform has removed it
    jobs: tuple[str, ...] = ()  # the jobs whose ranks and replicas it takes; (): any
    check: NodeCheck = field(default_factory=NodeCheck)
    stored: NodePlace | None = None  # as a former leader left it in etcd; None: not so, or not any more
    whole: NodeBeat | None = None  # its last whole heartbeat on this stream; None: none that could be read
    part_read: bool = False  # parts of that heartbeat could not be read
    walk: StepWalk | None = None  # how its short heartbeats are taken, if nothing but steps matters

    @property
    def free_to_go(self) -> bool:
        """Whether it is drained: no rank is left on it, so its silence is no failure."""
        return self.drain is not None and self.drain.done

    @property
    def shown(self) -> str:
        """Its state as people see it: a node that was drained and then ended has left, it is not lost."""
        left = self.drain is not None and self.drain.in_order and self.state in ("suspect", "lost")
        return LEFT if left else self.state

    @property
    def up(self) -> bool:
        """Whether orders reach it."""
        return self.state == "up"

    @property
    def knows_no_marks(self) -> bool:
        """Whether its present agent does not know how to mark a suspect checkpoint."""
        return self.incarnation > 0 and self.knows_no_marks_in == self.incarnation

    def takes(self, job: str) -> bool:
        """Whether ranks of this job may run here, and replicas of their snapshots be kept here."""
        return not self.jobs or job in self.jobs

    def copies_of(self, job: str) -> list[PeerCopy]:
        """The replicas that it keeps for a job."""
        return [copy for copy in self.copies if copy.job == job]


@dataclass(slots=True)
class Pending:
    """A queued write. `then` is called once etcd holds it; it is dropped unsent when `wanted` returns
    False."""

    effect: Store
    then: Callable[[], None] | None
    wanted: Callable[[], bool] | None
    asked: bool = False  # sent to etcd, and not answered yet
    trouble: str = ""  # why etcd did not take it last time; "": it was not refused


class ClusterState:
    """All that one leader remembers. Decisions are in the modules that take it as an argument (`state`)."""

    def __init__(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.term = 0
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.hosts: dict[str, dict[str, None]] = {}  # by node: jobs with members there, or former ones
        self.keepers: dict[str, dict[str, None]] = {}  # by job: nodes with replicas (`restore.keepers`)
        self.deadlines = Deadlines()
        self.counts: dict[str, int] = {}  # dropped and refused messages by kind
        self.incidents: list[Incident] = []  # closed ones of this term, oldest first
        self.write_queues: dict[str, deque[Pending]] = {}  # by name, such as job/NAME; none is empty
        self.fenced = False  # another leader has taken over: nothing is decided here any more
        self.checks = ChecksUnderWay()
        self.all_heard = False  # every node that etcd names has reported to this leader, or is lost
        self.rounds = 0  # rounds so far in which nodes dialled their peers
        self.looked_at = -math.inf  # when (s) all jobs last looked at nodes
        self.streams = 0  # grows when a node's stream begins or comes back: orders may need repetition
        self.unclaimed: dict[str, dict[str, CheckpointRecord]] = {}  # checkpoints of jobs not submitted here
        self.guard: MassFailureGuard | None = None  # the mass-failure guard, while it is on
        self.histories: dict[str, LemonRecord] = {}  # failures by node, also of nodes that are not connected
        self.wall_s = 0.0  # Unix time at `now` 0; 0: not known
        self.unread: tuple[Unread, ...] = ()  # rows of etcd that cannot be read
        self.dcs_trouble = ""  # why etcd does not answer; "": it does
        self.findings: dict[tuple[str, str], Finding] = {}  # by (kind, subject), as last assessed
        self.diagnosed: dict[str, tuple[OpenFinding, ...]] = {}  # by job: what diagnosis has open
        self.begun: list[float] = []  # when (s) incidents of the last hour began
        self.health_at = -1.0  # when (s) health was last assessed; -1: never
        self.replaced: list[float] = []  # when (s) nodes were replaced, within the last hour
        self.paused = ""  # why nothing new is started; "": new jobs and ranks may start
        self.dirty: dict[str, None] = {}  # jobs to be driven before this step ends
        self._tickets = 0  # tickets of writes given out so far
        self._members = 0  # members named so far by this leader
        self._queue_of_ticket: dict[int, str] = {}  # ticket -> its write queue
        self._out: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        """Have the shell carry out this effect."""
        self._out.append(effect)

    def take(self) -> list[Effect]:
        """Return the effects emitted since the last call."""
        out, self._out = self._out, []
        return out

    def note(self, kind: NoteKind, subject: str, reason: str) -> None:
        """Write a line into the journal."""
        self.emit(fx.Note(kind, subject, reason))

    def drop(self, kind: NoteKind, subject: str, reason: str) -> None:
        """Count and journal a message that is not acted upon."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.note(kind, subject, reason)

    def touch(self, job: Job) -> None:
        """Drive this job before the step ends."""
        self.dirty[job.name] = None

    def touch_all(self) -> None:
        """Drive every job before the step ends: it may wait for what has changed."""
        for job in self.jobs.values():
            self.touch(job)

    def nodes_changed(self) -> None:
        """Note that the set of usable nodes has changed: every job looks again at nodes for ranks and for
        replicas, at once or, where nodes change all the time, with the next look (`timing.look_gap_s`)."""
        for job in self.jobs.values():
            job.replicas.replan = True
        next_at = self.looked_at + look_gap_s(len(self.nodes))
        if self.now < next_at:
            self.deadlines.sooner(("nodes", ""), next_at)
        else:
            self.look_at_nodes()

    def look_at_nodes(self) -> None:
        """Drive every job: nodes have changed."""
        self.looked_at = self.now
        self.touch_all()

    def wake(self, job: Job, at: float) -> None:
        """Drive this job at `at` (s), or earlier if it has an earlier deadline."""
        self.deadlines.sooner(("job", job.name), at)

    def up(self, node: str) -> bool:
        """Whether orders reach this node."""
        found = self.nodes.get(node)
        return found is not None and found.up

    def order(self, job: Job, key: tuple[str, ...], effect: Effect, every: float | None = None) -> None:
        """Send an order to the node `key[1]`, unless it was sent within the last `every` s, and wake the job
        when it is due again. So an order is repeated for as long as callers call this.

        `every` is `settings.retry_s` when None. A node that is not up gets nothing; callers ask again when it
        has returned."""
        if not self.up(key[1]):
            return
        every = self.settings.retry_s if every is None else every
        at = job.sent.at(key)
        if self.now >= at + every:
            at = self.now
            job.sent.put(key, at, at - max(self.settings.retry_s, self.settings.long_retry_s))
            self.emit(effect)
        self.wake(job, at + every)

    def order_each(
        self, job: Job, what: tuple[str, str], nodes: Iterable[str], make: Callable[[str], Effect]
    ) -> bool:
        """Send one order to each of many nodes, repeated as by `order`. Return whether all that are up got
        it now.

        It goes through the delivery log once for all nodes, so that a generation of ten thousand nodes is
        interrupted in one step."""
        every, now = self.settings.retry_s, self.now
        stale = now - max(every, self.settings.long_retry_s)
        up = [name for name in nodes if (node := self.nodes.get(name)) is not None and node.state == "up"]
        sent, first = job.sent.renew(what, up, now, every, stale)
        self._out += map(make, sent)
        if up:
            self.wake(job, first + every)
        return len(sent) == len(up)

    def new_member(self, job: str) -> str:
        """A member name that was never given before."""
        self._members += 1
        return f"{job}.{self.next_number - 1}"

    @property
    def next_number(self) -> int:
        """The number of the next new member. This leader, or another one, may have given out lower ones."""
        return self.term * MEMBERS_PER_TERM + self._members

    @property
    def wall(self) -> float:
        """Now, as a Unix time in s."""
        return self.wall_s + self.now

    def ask_health(self) -> None:
        """Assess health shortly: something that it depends on has changed."""
        self.deadlines.sooner(("health", ""), max(self.now + HEALTH_LAG_S, self.health_at + HEALTH_GAP_S))

    def set_phase(self, job: Job, phase: JobPhase, reason: str) -> None:
        """Change a job's phase and reason, and emit JobChanged. AssertionError unless `TRANSITIONS` has it.

        No other function changes the phase of a job, except a leader's takeover, which reads it from etcd."""
        if job.phase is not phase:
            if phase not in TRANSITIONS[job.phase]:
                raise AssertionError(f"job {job.name} cannot go from {job.phase} to {phase}: {reason}")
            self.ask_health()
        if (job.phase, job.reason) != (phase, reason):
            job.phase, job.reason = phase, reason
            self.emit(fx.JobChanged(job.state()))

    def store(
        self,
        queue_name: str,
        effect: Store,
        then: Callable[[], None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Queue a write to etcd. Writes of one queue (`queue_name`) go one at a time, in order.

        A failed write is repeated with the same content, unless `wanted` returns False by then. `then`
        runs once etcd holds it. Ticket and term are filled in here."""
        self._tickets += 1
        effect = dataclasses.replace(effect, ticket=self._tickets, term=self.term)
        self.write_queues.setdefault(queue_name, deque()).append(Pending(effect, then, wanted))
        self._queue_of_ticket[self._tickets] = queue_name
        self.pump(queue_name)

    def pump(self, queue_name: str) -> None:
        """Send the first write of a queue unless it is on its way; drop those not wanted any more."""
        queue = self.write_queues.get(queue_name)
        while queue and not queue[0].asked:
            first = queue[0]
            if first.wanted is not None and not first.wanted():
                del self._queue_of_ticket[queue.popleft().effect.ticket]
                continue
            if not self.fenced:
                first.asked = True
                self.emit(first.effect)
            return
        if not queue:
            self.write_queues.pop(queue_name, None)

    def stored_ok(self, ticket: int) -> None:
        """etcd holds the write of this ticket: continue with what waited for it."""
        queue_name = self._queue_of_ticket.pop(ticket, None)
        if queue_name is None:
            self.drop(NoteKind.STALE_TICKET, str(ticket), "no store of this ticket is on its way")
            return
        done = self.write_queues[queue_name].popleft()
        if done.trouble:  # the failed write was a finding of health, which may have paused new starts
            self.ask_health()
        if done.then is not None:
            done.then()
        self.pump(queue_name)

    def stored_not(self, ticket: int, reason: str) -> None:
        """etcd does not hold the write of this ticket: repeat it after `retry_s`."""
        queue_name = self._queue_of_ticket.get(ticket, "")
        first = next(iter(self.write_queues.get(queue_name, ())), None)
        if first is None or not first.asked:
            self.drop(NoteKind.STALE_TICKET, str(ticket), "no store of this ticket is on its way")
            return
        self.counts["store_failed"] = self.counts.get("store_failed", 0) + 1
        if first.trouble:  # refused once more: not by chance
            self.ask_health()
        first.asked, first.trouble = False, reason
        self.note(NoteKind.STORE_FAILED, queue_name, reason)
        self.deadlines.sooner(("queue", queue_name), self.now + self.settings.retry_s)

    def in_flight(self, queue_name: str) -> bool:
        """Whether a write of this queue is not in etcd yet."""
        return queue_name in self.write_queues

    def trouble(self, queue_name: str) -> str:
        """Why etcd did not take the first write of this queue; "": nothing is known."""
        return self.write_queues[queue_name][0].trouble if queue_name in self.write_queues else ""

    def members_of(self, node: str) -> list[tuple[Job, Member]]:
        """Every member known on a node, with its job."""
        known = (self.jobs.get(name) for name in self.hosts.get(node, ()))
        return [(job, member) for job in known if job for member in job.by_node.get(node, {}).values()]
