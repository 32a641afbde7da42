"""Be one agent on the wire, and nothing else: it says hello, beats with a new step, and counts its orders."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from benchmarks.scale import shape
from benchmarks.scale.http2 import NoRoom, Stream
from benchmarks.scale.relaying import Relay, SenderLink
from controlplane.core.records.model import NO_STEP
from controlplane.core.records.step_beats import WHOLE_EVERY
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.relayed import BeatsTaken
from controlplane.wire.versions import STEP_BEAT

if TYPE_CHECKING:
    import ssl

LINK = "/holdfast.control.v1.Control/Link"
INCARNATION = 1
AGAIN_S = 0.5
"""How long an agent waits before it connects again, unless it is told when."""


def step_now() -> int:
    """The step of all ranks: one more every `STEP_S`, so the same in all processes of this machine."""
    return 100 + int(time.monotonic() / shape.STEP_S)


@dataclass(slots=True)
class Talk:
    """What all agents of one process share, and what has happened to them all.

    - `beat_every_s`: None: as the coordinator's welcome says.
    - `tls`: what connections are encrypted with; None: they are not."""

    addresses: tuple[str, ...]
    cluster: str
    beat_every_s: float | None
    tls: ssl.SSLContext | None = None
    beats: int = 0
    relayed: int = 0  # of the beats
    orders: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


class LightAgent(asyncio.Protocol):
    """One agent with at most one connection. `attached`: the coordinator has welcomed it on this one."""

    def __init__(self, number: int, talk: Talk, *, relays: bool = False) -> None:
        self.name = shape.name_of(number)
        self._number, self._talk, self._seq = number, talk, 0
        self._stream: Stream | None = None
        self._transport: asyncio.Transport | None = None
        self._due: asyncio.TimerHandle | None = None
        self._again_s = AGAIN_S  # how long it waits before it connects again
        self._met = False  # it has begun to connect once
        self._where = 0  # which of the addresses is tried next
        self._message = codec.to_coordinator(shape.beat(number, INCARNATION, 0, step_now()))
        self._short = pb.AgentMessage()  # the short form of that one
        self._shortens, self._left = False, 0  # whether beats may be short, and how many until a whole one
        self.attached, self.silent, self.killed = False, False, False
        self._sender = SenderLink(self.name, INCARNATION)
        self.relay = Relay() if relays else None

    async def connect(self) -> None:
        """Open a connection to the address that is next. A refused one counts as an end."""
        loop, talk = asyncio.get_running_loop(), self._talk
        if self.relay is not None and not self._met:
            await self.relay.start()
        self._met = True
        address = talk.addresses[self._where % len(talk.addresses)]
        host, _, port = address.rpartition(":")
        self._stream = Stream(LINK, address)
        try:
            await loop.create_connection(lambda: self, host, int(port), ssl=talk.tls)
        except OSError as error:
            self._again(type(error).__name__)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce the node."""
        assert self._stream is not None
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        peer = self.relay.address if self.relay is not None else ""
        joined = shape.joined(self._number, INCARNATION, step_now(), peer)
        hello = codec.hello(joined, self._talk.cluster, term_seen=0)
        self._transport.write(self._stream.opening() + self._stream.message(hello.SerializeToString()))
        if self._talk.beat_every_s is not None:
            self._shortens, self._left = True, 0
            self._begin(self._talk.beat_every_s)

    def data_received(self, data: bytes) -> None:
        """Answer what HTTP/2 asks, and read the coordinator's messages."""
        assert self._stream is not None and self._transport is not None
        messages, reply = self._stream.receive(data)
        if reply:
            self._transport.write(reply)
        for message in messages:
            self._take(pb.CoordinatorMessage.FromString(message))
        if self._stream.over:
            self._transport.abort()  # a TLS close would wait for the other side for 30 s

    def _take(self, message: pb.CoordinatorMessage) -> None:
        kind = message.WhichOneof("body") or "none"
        if kind == "welcome" and self._talk.beat_every_s is None:
            self._shortens, self._left = STEP_BEAT in message.welcome.hears, 0
            self._sender.key = message.welcome.beat_key
            if self.relay is not None:
                self.relay.collector.welcomed(
                    self._pass_on, message.welcome.beat_interval_s, frozenset(message.welcome.hears)
                )
            self._begin(message.welcome.beat_interval_s)
        elif kind == "relay_beats":
            self._sender.name(message.relay_beats)
        elif kind == "beats_taken" and self.relay is not None:
            self.relay.collector.taken(BeatsTaken(self.name, message.beats_taken.number))
        elif kind == "refused":
            self._again_s = message.refused.again_after_s or AGAIN_S
            self._talk.ends["later" if message.refused.again_after_s else message.refused.reason] += 1
            self._where += not message.refused.again_after_s
        elif kind != "welcome":
            self._talk.orders[kind] += 1

    def connection_lost(self, error: Exception | None) -> None:
        """Connect again, unless the node is lost."""
        self._again(type(error).__name__ if error else (self._stream and self._stream.over) or "closed")

    def _again(self, why: str) -> None:
        self.attached, self._transport = False, None
        self._sender.key = b""
        self._sender.route.name("", "")
        self._sender.cut()
        if self.relay is not None:
            self.relay.collector.down()
        if self._due is not None:
            self._due.cancel()
        if self.silent:
            return
        if why != "ended":  # the reason of a refusal is counted already
            self._talk.ends[why] += 1
            self._where += 1
        again_s, self._again_s = self._again_s, AGAIN_S
        asyncio.get_running_loop().call_later(
            again_s, lambda: self.silent or asyncio.ensure_future(self.connect())
        )

    def _begin(self, every_s: float) -> None:
        """Beat from now on. The first beat comes at a moment of this agent's own within the interval."""
        self.attached = True
        first_s = every_s * (self._number * 0.618034 % 1)
        self._due = asyncio.get_running_loop().call_later(first_s, self._beat, every_s)

    def _beat(self, every_s: float) -> None:
        self.say()
        self._due = asyncio.get_running_loop().call_later(every_s, self._beat, every_s)

    def say(self) -> None:
        """Send one beat, in which all ranks have come to the present step."""
        if self._transport is None or self._stream is None or self._transport.is_closing():
            return
        self._seq += 1
        message = self._next(step_now())
        if message.HasField(STEP_BEAT) and self._sender.sends(message.step_beat):
            self._talk.beats += 1
            self._talk.relayed += 1
            return
        data = message.SerializeToString()
        try:
            self._transport.write(self._stream.message(data))
        except NoRoom:
            self._talk.ends["no room"] += 1
            return
        self._talk.beats += 1

    def _pass_on(self, message: pb.AgentMessage) -> None:
        """Send the heartbeats of others."""
        if self._transport is None or self._stream is None or self._transport.is_closing():
            return
        try:
            self._transport.write(self._stream.message(message.SerializeToString()))
        except NoRoom:
            self._talk.ends["no room"] += 1

    def _next(self, step: int) -> pb.AgentMessage:
        """The beat that is due; what has not changed since the last one is not made again."""
        if self.killed:
            beat = shape.beat(self._number, INCARNATION, self._seq, step, killed=True)
            return codec.to_coordinator(beat)
        offered = shape.offered_in(self._number, step)
        if self._left:
            self._left -= 1
            short = self._short.step_beat
            short.seq = self._seq
            short.steps[:] = [step] * shape.RANKS
            short.snapshot_steps[:] = [offered] * shape.RANKS
            short.snapshots_before[:] = [NO_STEP] * shape.RANKS
            return self._short
        self._message.beat.seq = self._seq
        for member in self._message.beat.members:
            member.step, member.snapshot_step = step, offered
        if self._shortens:
            self._short.step_beat.like, self._left = self._seq, WHOLE_EVERY - 1
        return self._message

    def kill_rank(self) -> float:
        """Report that a rank is dead, at once. Returns when (s, CLOCK_MONOTONIC)."""
        self.killed = True
        now = time.monotonic()
        self.say()
        return now

    def lose(self) -> None:
        """The node vanishes: no word more, and its connection is cut."""
        self.silent = True
        if self._transport is not None:
            self._transport.abort()
