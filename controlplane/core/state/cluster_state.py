"""The state of one leader and its ways to speak: effects, orders that repeat, stores that queue."""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import TRANSITIONS
from controlplane.core.state.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.core.records.effects import Effect, Store
    from controlplane.core.records.model import (
        CheckpointRecord,
        Incident,
        JobPhase,
        LemonRecord,
        PeerCopy,
        Unread,
    )
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.findings import Brake, Finding
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

MEMBERS_PER_TERM = 1_000_000
LEFT = "left"
"""What people are told of a node that was ended in order. To the core it is lost, as any that is gone."""

HEALTH_LAG_S = 0.1
HEALTH_GAP_S = 1.0


@dataclass(slots=True)
class Drain:
    """A node is to be freed of ranks until `by` (s); then they are moved in any case."""

    reason: str
    by: float
    own: bool = False  # its agent asked for it: the node itself goes away
    force: bool = False  # even when that parks a job
    asked_at: float = 0.0  # s
    done: bool = False
    in_order: bool = False  # it was done while the node was there to hear of it
    told: str = ""  # what stands in its way, as told last
    asked_by_s: float = 0.0  # `by` as people asked for it, a Unix time


@dataclass(slots=True)
class Node:
    """One node. `state`: expected (known from etcd only), up, suspect (its stream broke), lost."""

    name: str
    state: str = "expected"
    reason: str = ""
    incarnation: int = 0
    launcher: str = ""
    address: str = ""
    slots: int = 0
    port: int = 0
    seq: int = -1  # of its newest beat
    top: int = -1  # of its newest beat or report
    heard_at: float = 0.0
    bad_devices: dict[str, str] = field(default_factory=dict)
    domain: str = ""  # failure domain; never "" once it has joined
    peer: str = ""  # host:port of its peer service, "": none
    copies: tuple[PeerCopy, ...] = ()  # snapshots of other nodes' members that it keeps
    version: str = ""  # of its agent; "": not told
    up_since: float = 0.0  # since when (s) its stream stands
    cordoned: str = ""  # why it takes no new seats; ""
    drain: Drain | None = None  # it is being freed of ranks, or has been
    excluded: dict[str, str] = field(default_factory=dict)  # devices that killed ranks again and again
    deaths: dict[int, list[float]] = field(default_factory=dict)  # local rank -> when (s) ranks died there
    proved_at: float = -1.0  # when (s) it last answered a probe
    lost_at: float = -1.0  # when (s) it was given up
    returns: list[float] = field(default_factory=list)  # when (s) it came back, within the window
    held_until: float = 0.0  # it takes no seats before
    held_why: str = ""
    cut: str = ""  # why it reaches none of its peers in a job; ""
    cut_from: tuple[str, ...] = ()  # these
    lemon: LemonRecord | None = None  # its history of failures
    unfit_since: float = -1.0  # since when (s) it should be replaced
    replace_again_at: float = 0.0  # its replacement is not asked for (again) before, s
    unreplaced: str = ""  # why it could not be replaced
    replaced: bool = False  # the platform has taken it away
    jobs: tuple[str, ...] = ()  # whose ranks and copies it takes; (): every job's

    @property
    def free_to_go(self) -> bool:
        """Drained, and no rank is left on it: that it falls silent now is no surprise."""
        return self.drain is not None and self.drain.done

    @property
    def shown(self) -> str:
        """Its state as people see it: what was free to go, and went, is not lost."""
        left = self.drain is not None and self.drain.in_order and self.state in ("suspect", "lost")
        return LEFT if left else self.state

    @property
    def up(self) -> bool:
        """Orders reach it."""
        return self.state == "up"

    def takes(self, job: str) -> bool:
        """Whether ranks of this job may sit here, and copies of their snapshots lie here."""
        return not self.jobs or job in self.jobs

    def copies_of(self, job: str) -> list[PeerCopy]:
        """What it keeps for a job."""
        return [copy for copy in self.copies if copy.job == job]


@dataclass(slots=True)
class Pending:
    """A Store on its way; `then` is called when etcd holds it."""

    effect: Store
    then: Callable[[], None] | None
    wanted: Callable[[], bool] | None
    asked: bool = False  # the shell has it now
    trouble: str = ""  # why etcd did not take it last time


class ClusterState:
    """The mutable whole. Decisions live in the modules that take it as an argument."""

    def __init__(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.term = 0
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.deadlines = Deadlines()
        self.counts: dict[str, int] = {}
        self.incidents: list[Incident] = []
        self.write_queues: dict[str, deque[Pending]] = {}
        self.fenced = False
        self.rounds = 0  # of dialling peers
        self.streams = 0  # times that a node's stream began or was heard again
        self.unclaimed: dict[str, dict[str, CheckpointRecord]] = {}  # of jobs that are not here
        self.brake: Brake | None = None  # decisions to drop nodes are paused
        self.histories: dict[str, LemonRecord] = {}  # of failures, by node
        self.wall_s = 0.0  # Unix time of `now` 0
        self.unread: tuple[Unread, ...] = ()  # what etcd holds and nobody can read
        self.dcs_trouble = ""  # why etcd does not answer; "": it does
        self.findings: dict[tuple[str, str], Finding] = {}  # what is wrong with the cluster, as told
        self.begun: list[float] = []  # when (s) incidents of the last hour began
        self.health_at = -1.0  # when (s) it was last looked at
        self.replaced: list[float] = []  # when (s) nodes were replaced, within the last hour
        self.paused = ""  # why nothing new is started; ""
        self.dirty: dict[str, None] = {}  # jobs to look at before this step ends
        self._tickets = 0
        self._members = 0
        self._lane_of: dict[int, str] = {}
        self._out: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        """Have the shell do this."""
        self._out.append(effect)

    def take(self) -> list[Effect]:
        """What was emitted since the last call."""
        out, self._out = self._out, []
        return out

    def note(self, kind: NoteKind, subject: str, reason: str) -> None:
        """A line for the journal."""
        self.emit(fx.Note(kind, subject, reason))

    def drop(self, kind: NoteKind, subject: str, reason: str) -> None:
        """A message that is not followed: counted and noted."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.note(kind, subject, reason)

    def touch(self, job: Job) -> None:
        """Look at this job before the step ends."""
        self.dirty[job.name] = None

    def touch_all(self) -> None:
        """Look at every job: it may wait for what has changed."""
        for job in self.jobs.values():
            self.touch(job)

    def nodes_changed(self) -> None:
        """A node may be used that could not, or the other way round: for ranks, and for copies."""
        for job in self.jobs.values():
            job.replicas.replan = True
        self.touch_all()

    def wake(self, job: Job, at: float) -> None:
        """Look at this job at `at`."""
        self.deadlines.sooner(("job", job.name), at)

    def up(self, node: str) -> bool:
        """Orders reach this node."""
        found = self.nodes.get(node)
        return found is not None and found.up

    def order(self, job: Job, key: tuple[str, ...], effect: Effect, every: float | None = None) -> None:
        """Send an order to the node `key[1]`, and again every `every` s for as long as it is asked for."""
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
        """One order for each of many nodes, repeated as `order` does. Whether all of them were told now."""
        every, now = self.settings.retry_s, self.now
        stale = now - max(every, self.settings.long_retry_s)
        up = [name for name in nodes if (node := self.nodes.get(name)) is not None and node.state == "up"]
        told, first = job.sent.renew(what, up, now, every, stale)
        self._out += map(make, told)
        if up:
            self.wake(job, first + every)
        return len(told) == len(up)

    def new_member(self, job: str) -> str:
        """A name never given before: the counter starts at the term's own range."""
        self._members += 1
        return f"{job}.{self.next_number - 1}"

    @property
    def next_number(self) -> int:
        """Of the next new member: this leader and those before it have given those below."""
        return self.term * MEMBERS_PER_TERM + self._members

    @property
    def wall(self) -> float:
        """Now, as a Unix time in s."""
        return self.wall_s + self.now

    def ask_health(self) -> None:
        """Something that the cluster's health rests on has changed: look at it shortly."""
        self.deadlines.sooner(("health", ""), max(self.now + HEALTH_LAG_S, self.health_at + HEALTH_GAP_S))

    def set_phase(self, job: Job, phase: JobPhase, reason: str) -> None:
        """Change a job's phase, and say so: the only place, but for a leader's takeover from etcd."""
        if job.phase is not phase:
            if phase not in TRANSITIONS[job.phase]:
                raise AssertionError(f"job {job.name} cannot go from {job.phase} to {phase}: {reason}")
            self.ask_health()
        if (job.phase, job.reason) != (phase, reason):
            job.phase, job.reason = phase, reason
            self.emit(fx.JobChanged(job.state()))

    def store(
        self,
        lane: str,
        effect: Store,
        then: Callable[[], None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Put records into etcd, one at a time per lane and in order; a failed one is tried again with the
        same content, unless `wanted` says that it is of no use any more."""
        self._tickets += 1
        effect = dataclasses.replace(effect, ticket=self._tickets, term=self.term)
        self.write_queues.setdefault(lane, deque()).append(Pending(effect, then, wanted))
        self._lane_of[self._tickets] = lane
        self.pump(lane)

    def pump(self, lane: str) -> None:
        """Ask for the first store of a lane, if it is not on its way."""
        queue = self.write_queues.get(lane)
        while queue and not queue[0].asked:
            first = queue[0]
            if first.wanted is not None and not first.wanted():
                del self._lane_of[queue.popleft().effect.ticket]
                continue
            if not self.fenced:
                first.asked = True
                self.emit(first.effect)
            return
        if not queue:
            self.write_queues.pop(lane, None)

    def stored_ok(self, ticket: int) -> None:
        """etcd holds it: go on with what waited for it."""
        lane = self._lane_of.pop(ticket, None)
        if lane is None:
            self.drop(NoteKind.STALE_TICKET, str(ticket), "no store of this ticket is on its way")
            return
        done = self.write_queues[lane].popleft()
        if done.trouble:  # it was a finding of the cluster's health, which may have paused new launches
            self.ask_health()
        if done.then is not None:
            done.then()
        self.pump(lane)

    def stored_not(self, ticket: int, reason: str) -> None:
        """etcd does not hold it: again after a while."""
        lane = self._lane_of.get(ticket)
        if lane is None or not self.write_queues[lane][0].asked:
            self.drop(NoteKind.STALE_TICKET, str(ticket), "no store of this ticket is on its way")
            return
        self.counts["store_failed"] = self.counts.get("store_failed", 0) + 1
        self.write_queues[lane][0].asked, self.write_queues[lane][0].trouble = False, reason
        self.note(NoteKind.STORE_FAILED, lane, reason)
        self.deadlines.sooner(("lane", lane), self.now + self.settings.retry_s)

    def in_flight(self, lane: str) -> bool:
        """Whether a store of this lane waits for etcd."""
        return lane in self.write_queues

    def trouble(self, lane: str) -> str:
        """Why the first store of this lane is not in etcd yet; "" when nothing is known."""
        return self.write_queues[lane][0].trouble if lane in self.write_queues else ""

    def members_of(self, node: str) -> list[tuple[Job, Member]]:
        """Every member the book has on a node."""
        return [(job, member) for job in self.jobs.values() for member in job.by_node.get(node, {}).values()]
