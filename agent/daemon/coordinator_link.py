"""Keep one stream to the leading coordinator for as long as the agent lives.

Training never waits for the stream. Coordinators are tried in turn, with a growing pause; one that does not
lead names the leader, which is tried next. Orders of a leader whose term is over are dropped. What cannot be
sent now is kept in the Outbox, which decides what the next stream begins with."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from agent.deciding.outbox import KEEPALIVE_ANSWER_S, KEEPALIVE_S, RESEND_S, Outbox
from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.access.keepalive import keepalive
from controlplane.background_tasks import together
from controlplane.core.records import events
from controlplane.settings import SettingsError
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import ControlStub
from controlplane.wire.shape import WireError
from controlplane.wire.versions import STEP_BEAT
from holdfast import logs
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.relays.collecting import BeatCollector
    from agent.relays.sending import BeatSender
    from controlplane.core.records.model import MemberStatus, PeerCopy

_ANSWER_TIMEOUT_S = 5.0
_BACKOFF_S = (0.1, 3.0)
"""The first and the longest pause before the next try."""
_WAITING_MAX = 4096
"""How many messages may wait to be sent. A leader that falls further behind is left for another stream."""
_OPTIONS = (
    ("grpc.max_receive_message_length", codec.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", codec.MESSAGE_BYTES_MAX),
    *keepalive(KEEPALIVE_S, KEEPALIVE_ANSWER_S),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_BROKEN = (
    grpc.RpcError,
    OSError,
    TimeoutError,
    WireError,
    asyncio.InvalidStateError,  # a write on a stream that ended at the same moment
    grpc.aio.BaseError,  # the same, noticed later
    SettingsError,  # credentials that cannot be read now, or a leader that could be called only in plaintext
)
"""What ends a stream and is answered by trying again."""
_stub: Any = ControlStub  # generated code has no annotations
log = logging.getLogger("holdfast.agent.link")


class LinkRefused(RuntimeError):
    """Every coordinator refuses this agent, for good. The message says why."""


class _Moved(Exception):
    """The coordinator that was asked does not lead; with `again_after_s` (s) it does, and has too much to do
    now."""

    def __init__(self, reason: str, leader: str, again_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.leader, self.again_after_s = leader, again_after_s


@dataclass(frozen=True, slots=True)
class Peer:
    """What the link needs of its node.

    `joined` makes the first event of a stream; `statuses`, `copies` and `port` are what each beat carries;
    `order` takes an order; `drop` counts what was dropped."""

    cluster: str
    node: str
    incarnation: int
    joined: Callable[[], events.NodeJoined]
    statuses: Callable[[], tuple[MemberStatus, ...]]
    copies: Callable[[], tuple[PeerCopy, ...]]
    port: Callable[[], int]
    order: Callable[[codec.Order], None]
    drop: Callable[[str, str], None]
    absent: Callable[[str], None]  # called with a coordinator that does not lead
    open: Callable[[], Iterable[codec.AgentEvent]]  # what no leader has answered yet, or must hear anew
    beat_sender: BeatSender | None = None  # takes short heartbeats to a relay; None: all go directly
    beat_collector: BeatCollector | None = None  # passes on those of others


class CoordinatorLink:
    """Sends the node's events and receives orders, over one stream at a time.

    No one-time event is lost while the leader changes; one may arrive twice."""

    def __init__(
        self,
        coordinators: Sequence[str],
        beat_interval_s: float,
        peer: Peer,
        access: ClientCredentials | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._access = access or plain()
        self._coordinators = tuple(coordinators)
        self._beat_interval_s = beat_interval_s
        self._peer = peer
        self._outbox = Outbox()
        self._unsent: asyncio.Queue[tuple[codec.AgentEvent | None, pb.AgentMessage]] = asyncio.Queue()
        self._known_kinds: frozenset[str] = frozenset()
        self.step_times_every_s = 0.0  # how often the leader wants them; 0: never
        self.snapshots_by_beats = False  # beats alone tell the leader of offered snapshots
        self.up = False
        """The coordinator that this stream, or the one before it, goes to; "": none yet."""
        self.beats = 0
        self.welcomes = 0

    @property
    def term(self) -> int:
        """The highest term received so far."""
        return self._outbox.term

    async def run(self) -> None:
        """Keep the stream up until cancelled.

        Raises LinkRefused when every coordinator refuses this agent for good before any has accepted it."""
        targets = itertools.cycle(self._coordinators)
        pause_s, leader, refusals = _BACKOFF_S[0], "", 0
        while True:
            sent_on = bool(leader)
            target, leader = leader or next(targets), ""
            before = self.welcomes
            try:
                await self._converse(target)
            except _Moved as moved:
                log.info("coordinator %s: %s", target, moved)
                if moved.again_after_s:
                    leader = target
                    await asyncio.sleep(moved.again_after_s * random.uniform(0.9, 1.1))
                    continue
                if not moved.leader:
                    self._peer.absent(target)
                leader = moved.leader if moved.leader != target else ""
            except LinkRefused as refused:
                refusals += 1
                log.error("coordinator %s refuses this agent: %s", target, refused)
                if not self.welcomes and refusals >= len(self._coordinators):
                    raise
            except _BROKEN as error:
                log.warning("no connection to coordinator %s: %s", target, _reason(error))
                if "Connection refused" in _reason(error):
                    self._peer.absent(target)
            if self.welcomes > before:
                pause_s, refusals = _BACKOFF_S[0], 0
            if sent_on or not leader:  # pause: two coordinators may each take the other for the leader
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, _BACKOFF_S[1])

    def send_event(self, event: codec.AgentEvent) -> None:
        """Send an event now, or keep it until there is a stream. Levels are not kept: the next hello repeats
        them."""
        if self.up:
            self._send(event)
        else:
            self._outbox.keep(event)

    def send_message(self, message: pb.AgentMessage) -> None:
        """Send what is of use now or never."""
        if self.up:
            self._unsent.put_nowait((None, message))

    def _send(self, event: codec.AgentEvent) -> None:
        message = codec.to_coordinator(self._outbox.record_sent(self._clock(), event))
        sender = self._peer.beat_sender
        if sender is not None and message.HasField(STEP_BEAT) and sender.sends(message.step_beat):
            return
        message.sent_at_s = time.time()
        if codec.is_heard(message, self._known_kinds):
            self._unsent.put_nowait((event, message))

    async def _converse(self, target: str) -> None:
        """Run one stream, from the hello to its end. Raises the error that ended it."""
        async with self._access.channel(target, _OPTIONS) as channel:
            call = _stub(channel).Link(metadata=self._access.metadata())
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    await self._greet(call)
                self.target = target
                await together(self._write(call), self._beat(), self._read(call, target))
            except BaseExceptionGroup as group:
                raise _first(group) from None
            finally:
                self._down()
                call.cancel()

    async def _greet(self, call: Any) -> None:
        greeting = codec.hello(self._peer.joined(), self._peer.cluster, self.term, __version__)
        await call.write(greeting)
        message, answer = await self._answer(call)
        if isinstance(answer, codec.Refused):
            _refuse(answer)
        if not isinstance(answer, codec.Welcome):
            raise WireError(f"the first answer is a {type(answer).__name__}, not a welcome")
        if not self._outbox.follow(message.term):
            raise _Moved(f"its term {message.term} is over: term {self.term} is newer", "")
        self._known_kinds = answer.hears
        self._outbox.shortens = STEP_BEAT in answer.hears
        self.step_times_every_s = answer.step_times_every_s
        self.snapshots_by_beats = answer.snapshots_by_beats
        if answer.beat_interval_s > 0:
            self._beat_interval_s = answer.beat_interval_s
        if self._peer.beat_sender is not None:
            self._peer.beat_sender.welcomed(answer.beat_key)
        if self._peer.beat_collector is not None:
            self._peer.beat_collector.welcomed(self.send_message, self._beat_interval_s, answer.hears)
        self._up()

    async def _answer(
        self, call: Any
    ) -> tuple[pb.CoordinatorMessage, codec.Order | codec.Welcome | codec.Refused]:
        """Return the first message that can be read; before it, a newer leader may send kinds unknown
        here."""
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                raise OSError("the stream ended before an answer")
            try:
                return message, codec.order_from(message, self._peer.node)
            except WireError as error:
                self._peer.drop("order", str(error))

    def _up(self) -> None:
        self.up = True
        self.welcomes += 1
        log.info("connected to the coordinator of leader term %d", self.term)
        for event in self._outbox.replay(self._clock(), self._peer.open()):
            self._send(event)

    def _down(self) -> None:
        self.up = False
        for relaying in (self._peer.beat_sender, self._peer.beat_collector):
            if relaying is not None:
                relaying.down()
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._keep(self._unsent.get_nowait()[0])

    def _keep(self, event: codec.AgentEvent | None) -> None:
        if event is not None:
            self._outbox.keep(event)

    async def _write(self, call: Any) -> None:
        while True:
            event, message = await self._unsent.get()
            try:
                async with asyncio.timeout(RESEND_S):
                    await call.write(message)
            except BaseException:
                self._keep(event)  # it may or may not have been sent: the leader must bear it twice
                raise

    async def _beat(self) -> None:
        peer = self._peer
        while True:
            if self._unsent.qsize() > _WAITING_MAX:
                raise OSError(f"the leader is too slow: {self._unsent.qsize()} messages wait for it")
            beat = events.NodeBeat(
                peer.node, peer.incarnation, 0, peer.port(), peer.statuses(), peer.copies()
            )
            self._send(beat)
            self.beats += 1
            await asyncio.sleep(self._beat_interval_s)

    async def _read(self, call: Any, target: str) -> None:
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                raise OSError(f"{target} ended the stream")
            self._take(message)

    def _take(self, message: pb.CoordinatorMessage) -> None:
        if not self._outbox.follow(message.term):
            self._peer.drop("stale_order", f"its term {message.term} is over: term {self.term} is newer")
            return
        try:
            order = codec.order_from(message, self._peer.node)
        except WireError as error:
            self._peer.drop("order", str(error))
            return
        if isinstance(order, codec.Refused):
            _refuse(order)
        elif not isinstance(order, codec.Welcome):
            with logs.bound(message.incident):
                self._peer.order(order)


def _refuse(answer: codec.Refused) -> None:
    if answer.retry or answer.leader:
        raise _Moved(answer.reason, answer.leader, answer.again_after_s)
    raise LinkRefused(answer.reason)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
