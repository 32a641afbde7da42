"""Serve the streams of agents (Control.Link), and hold what all servers of the process share."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from controlplane.access.guard import LogLimiter, calling
from controlplane.core.records.diagnosis import (
    GradientReport,
    LinksProbed,
    RankEnded,
    RankProfiled,
    StepTimes,
)
from controlplane.core.records.events import LeaderDeaf, NodeBroken, NodeJoined, StacksCollected
from controlplane.core.records.node_checks import NodeSensed
from controlplane.daemon.server import log_streams, permitted
from controlplane.daemon.server.greeting_line import GreetingLine
from controlplane.daemon.server.links import AgentLink
from controlplane.settings import SettingsError, check_name
from controlplane.wire import codec, versions
from controlplane.wire import control_pb2 as pb
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.daemon.journal.journal import Journal
    from controlplane.daemon.kube.platform import Platform
    from controlplane.daemon.leadership.leader_term import LeaderTerm
    from controlplane.daemon.telemetry.alerts import Alerts
    from controlplane.daemon.telemetry.incident_spans import Spans
    from controlplane.daemon.telemetry.metrics import Metrics

    E = TypeVar("E", bound=codec.AgentEvent)

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
HELLOS_MAX = 512
"""Streams at a time whose hello has not arrived yet."""
LINE_LOOK_S = 0.1
"""How often agents are let in by how late the event loop is."""
DROPS_TOLD_PER_S = 20.0
"""Dropped messages per second that are logged and journalled; all are counted. With each new leader, ten
thousand agents try every standby."""


class _Unwelcome(Exception):
    """The hello is refused: `answer` goes to the agent, `counted` is the reason as metrics name it."""

    def __init__(
        self, counted: str, reason: str, *, retry: bool, leader: str = "", again_after_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.counted = counted
        self.answer = codec.refused(reason, retry=retry, leader=leader, again_after_s=again_after_s)


class ServerContext:
    """What the servers of one coordinator share.

    `leader_term` is set while this coordinator leads. `leader` is the leader's host:port, `leader_page` the
    URL of its status page; "": not known. `unelected` tells why this one cannot be elected; "": nothing
    is in its way. `address` and `page` are our own."""

    def __init__(self, cluster: str, journal: Journal, metrics: Metrics) -> None:
        self.cluster, self.journal, self.metrics = cluster, journal, metrics
        self.leader_term: LeaderTerm | None = None
        self.leader = self.leader_page = ""
        self.unelected: Callable[[], str] = str
        self.address = self.page = ""
        self._greeting = 0  # streams that are before their hello
        self.line = GreetingLine()
        self.relay_beats_from = 0
        self._turned_away, self._dropped = LogLimiter(), LogLimiter(DROPS_TOLD_PER_S)
        self.alerts: Alerts | None = None
        self.spans: Spans | None = None
        self.platform: Platform | None = None

    async def link(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serve one agent's stream, from its hello to its end. Requests come as bytes, so that an error can
        name what is wrong."""
        turn = None
        try:
            data = await self._first_message(context)
            turn = await self.line.enter()
            leader_term, link = await self._welcome(data, context)
        except _Unwelcome as unwelcome:
            self._drop(unwelcome.counted, str(unwelcome), context)
            await context.write(unwelcome.answer)
            return
        finally:
            if turn is not None:
                turn.over()
        try:
            await self._converse(leader_term, link, context)
        finally:
            leader_term.beats.gone(link)
            if leader_term.links.forget(link):
                reason = link.details or "the stream ended"
                leader_term.post(NodeBroken(link.node, link.incarnation, reason))
        if link.code is not grpc.StatusCode.OK:
            await context.abort(link.code, link.details)

    async def send_log(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> pb.LogTaken:
        """Serve one stream on which an agent sends a log that somebody has asked for."""
        return await log_streams.take(context, lambda: self.leader_term.logs if self.leader_term else None)

    async def _first_message(self, context: Any) -> bytes:
        """Return the bytes of a hello that may wait for its turn. Raises _Unwelcome when it may not."""
        if self.leader_term is None and self.line.waiting:
            raise self._no_leader()  # this costs nothing, and is all that a standby would say
        again_s = self.line.later_s(self._greeting, full=self._greeting >= HELLOS_MAX)
        if again_s:
            reason = f"too many agents come at once: come again in {again_s:.1f} s"
            raise _Unwelcome("later", reason, retry=True, again_after_s=again_s)
        self._greeting += 1
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                data: bytes = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {HELLO_TIMEOUT_S:g} s")
        finally:
            self._greeting -= 1
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before its hello")
        return data

    async def _welcome(self, data: bytes, context: Any) -> tuple[LeaderTerm, AgentLink]:
        """Have the core judge a hello, and wait until it has. Raises _Unwelcome."""
        greeting = await self._read_hello(data, context)
        leader_term = self._accept(greeting)
        joined = self._own_copies(_limited(greeting.joined), context)
        link = AgentLink(joined.node, joined.incarnation, greeting.takes)
        link.peer = joined.peer
        leader_term.links.expect(link)
        leader_term.post(joined)
        try:
            await asyncio.wait([link.admitted])
        except asyncio.CancelledError:
            if leader_term.links.forget(link):
                leader_term.post(NodeBroken(link.node, link.incarnation, "the stream ended"))
            raise
        return leader_term, link

    async def _read_hello(self, data: bytes, context: Any) -> codec.Greeting:
        """Return a hello, checked as far as possible without the cluster's state."""
        try:
            message = _parse(data)
            self._check_hello(message.hello)
            greeting = codec.greeting_from(message)
            if greeting.unread:
                self._drop("malformed", f"node {greeting.joined.node}: {greeting.unread}", context)
            return greeting
        except (WireError, SettingsError) as error:
            self._drop("malformed", str(error), context)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError("abort always raises")

    def _check_hello(self, hello: pb.Hello) -> None:
        """Refuse another version or another cluster. Called before the hello is decoded: the rest of it
        may mean anything."""
        if hello.protocol_version:
            reason = versions.refusal(hello.protocol_version, hello.holdfast_version)
            if reason:
                raise _Unwelcome("wrong_version", reason, retry=False)
        if hello.cluster and hello.cluster != self.cluster:
            raise _Unwelcome(
                "wrong_cluster",
                f"this is cluster {self.cluster!r}, the agent names {hello.cluster!r}: "
                "give both the same --cluster, or the agent another --coordinator",
                retry=False,
            )

    def _accept(self, greeting: codec.Greeting) -> LeaderTerm:
        """Return the leader term that takes this agent. Raises _Unwelcome."""
        try:
            check_name("node", greeting.joined.node)
        except SettingsError as error:
            raise _Unwelcome("bad_name", str(error), retry=False) from error
        if not calling().may_be(greeting.joined.node):
            raise _Unwelcome(
                "denied",
                f"{calling()} may not speak for node {greeting.joined.node!r}: give the agent a certificate "
                "or token of that node's name, or the name it has with --node",
                retry=False,
            )
        if not greeting.protocol_version or not greeting.cluster:
            raise _Unwelcome("malformed", "the hello names no protocol version or no cluster", retry=False)
        theirs = permitted.foreign(calling(), dataclasses.replace(greeting.joined, copies=()))
        if theirs:
            raise _Unwelcome(
                "denied",
                f"{calling()} has ranks of job {theirs!r}, or is to take them, and may not speak for it: "
                "add the job to its certificate or token, or take it out of --jobs and end those ranks",
                retry=False,
            )
        if self.leader_term is None:
            raise self._no_leader()
        if greeting.term_seen > self.leader_term.term:
            raise _Unwelcome(
                "stale_leader",
                f"the agent has heard a leader of term {greeting.term_seen}, "
                f"this one has term {self.leader_term.term}: connect to the newer one; if none leads, etcd "
                "has lost its data, and this agent must be started again",
                retry=True,
            )
        return self.leader_term

    def _no_leader(self) -> _Unwelcome:
        return _Unwelcome("not_leader", self.no_leader(), retry=True, leader=self.leader)

    def no_leader(self) -> str:
        """Why this coordinator does not answer for the cluster, and who does."""
        who = f"the leader is {self.leader}" if self.leader else f"nobody leads: {self.unelected()}"
        if not (self.leader or self.unelected()):
            who = "no leader is known yet, is etcd up?"
        return f"this coordinator is a standby: {who}"

    async def watch_line(self) -> None:
        """Let agents in by how late this event loop is, for ever, and tell the core while some wait."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LINE_LOOK_S
            await asyncio.sleep(LINE_LOOK_S)
            self.line.look(loop.time() - due)
            self.metrics.agents_waiting.set(self.line.waiting)
            spent_s = self.line.unheard_s()
            if spent_s and self.leader_term is not None:
                reason = f"{self.line.waiting} agents wait to be greeted"
                self.leader_term.post(LeaderDeaf(spent_s, reason, newcomers=True))

    async def _converse(self, leader_term: LeaderTerm, link: AgentLink, context: Any) -> None:
        """Read and write until either end closes the stream, or it is cut."""
        tasks = [
            asyncio.create_task(self._listen(leader_term, link, context)),
            asyncio.create_task(_speak(link, context)),
            asyncio.create_task(link.cut.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _listen(self, leader_term: LeaderTerm, link: AgentLink, context: Any) -> None:
        if not link.admitted.result():
            await link.cut.wait()  # the writer sends the refusal first, and then ends the stream
        else:
            leader_term.beats.admitted(link)
        while (data := await context.read()) is not grpc.aio.EOF:
            try:
                message = _parse(data)
            except WireError as error:
                self._drop(
                    "oversized" if len(data) > codec.MESSAGE_BYTES_MAX else "malformed", str(error), context
                )
                link.end(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                return
            leader_term.causes.heard(link.node, message.sent_at_s)
            if message.HasField(versions.BEATS_RELAYED):
                self._relayed(leader_term, link, message.beats_relayed, context)
                await leader_term.loop.room()
                continue
            event = self._event(link, message, context)
            if event is not None:
                leader_term.beats.note(link, event)
                event = self._own_copies(event, context)
                if theirs := permitted.foreign(calling(), event):
                    self._drop(
                        "denied",
                        f"{calling()} sent something about job {theirs!r:.80}, which it may not speak for",
                        context,
                    )
                elif isinstance(event, StepTimes | GradientReport | NodeSensed):
                    leader_term.diagnosis.take(event)
                elif isinstance(event, LinksProbed):
                    leader_term.diagnosis.take_probes(event)
                elif isinstance(event, RankProfiled):
                    leader_term.profiles.take(event)
                elif isinstance(event, RankEnded):
                    leader_term.causes.ended(event)
                elif not (isinstance(event, StacksCollected) and leader_term.stacks.take(event)):
                    leader_term.post(event)
            await leader_term.loop.room()

    def _relayed(
        self, leader_term: LeaderTerm, link: AgentLink, message: pb.BeatsRelayed, context: Any
    ) -> None:
        try:
            dropped = leader_term.beats.take(link, message)
        except WireError as error:
            dropped = [str(error)]
        for reason in dropped:
            self._drop("relayed", f"from {link.node}: {reason}", context)

    def _own_copies(self, event: E, context: Any) -> E:
        """Return the event without copies of jobs for which the caller may not speak; those are
        counted and logged."""
        event, refusal = permitted.own_copies(calling(), event)
        if refusal:
            self._drop("denied", refusal, context)
        return event

    def _event(self, link: AgentLink, message: pb.AgentMessage, context: Any) -> codec.AgentEvent | None:
        """Return the event in a message, as far as it can be read. What cannot be read is counted,
        logged and left out."""
        try:
            return codec.event_from(link.node, link.incarnation, message)
        except WireError as error:
            self._drop("malformed", f"node {link.node}: {error}", context)
        try:
            return codec.rest_of(link.node, link.incarnation, message)
        except WireError:  # something other than members and copies is wrong: already logged
            return None

    def denied(self, counted: str, peer: str, reason: str) -> None:
        """Count a caller that was refused; log and journal it unless there are too many."""
        self._report_refusal(self._turned_away, "turned away", counted, peer, reason)

    def _drop(self, counted: str, reason: str, context: Any) -> None:
        """Count a message that is not acted on; log and journal it unless there are too many."""
        self._report_refusal(self._dropped, "dropped", counted, context.peer(), reason)

    def _report_refusal(self, sparing: LogLimiter, what: str, counted: str, peer: str, reason: str) -> None:
        self.metrics.messages_dropped_total.labels(counted).inc()
        if not sparing():
            return
        more = f"; {left} more before, not logged" if (left := sparing.untold()) else ""
        log.warning("%s (%s) %s: %s%s", what, counted, peer, reason, more)
        term = self.leader_term.term if self.leader_term else 0
        body = {"kind": counted, "subject": peer, "reason": reason}
        self.journal.write_body(term, "daemon", "Dropped", body)


def _limited(joined: NodeJoined) -> NodeJoined:
    """Return the hello so that the node takes ranks only of the jobs for which its agent may speak."""
    jobs = calling().jobs
    return dataclasses.replace(joined, jobs=jobs) if jobs and not joined.jobs else joined


async def _speak(link: AgentLink, context: Any) -> None:
    while (message := await link.orders.get()) is not None:
        await context.write(message)


def _parse(data: bytes) -> pb.AgentMessage:
    if len(data) > codec.MESSAGE_BYTES_MAX:
        raise WireError(f"a message of {len(data)} bytes is over the limit of {codec.MESSAGE_BYTES_MAX}")
    return codec.parse_agent(data)
