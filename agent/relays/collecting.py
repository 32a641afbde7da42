"""Take heartbeats of other nodes in, pass them on in batches, and answer each when the leader has it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from agent.deciding.beat_collection import BeatCollection
from controlplane.background_tasks import BackgroundTasks
from controlplane.wire import peer_pb2 as pb
from controlplane.wire import relayed
from controlplane.wire.versions import BEATS_RELAYED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from controlplane.wire.control_pb2 import AgentMessage
    from controlplane.wire.relayed import BeatsTaken

SENDERS_MAX = 256
"""Twice as many as a leader gives one relay: the next leader gives anew while former senders still go."""
log = logging.getLogger("holdfast.agent.relays")


class BeatCollector:
    """The relay's part: its service for senders, and its batches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._send: Callable[[AgentMessage], None] | None = None  # to a leader that hears relays
        self._collection = BeatCollection(SENDERS_MAX, relayed.BATCH_BYTES_MAX)
        self._answers: dict[str, asyncio.Queue[int | None]] = {}
        self._tasks = BackgroundTasks()
        self._batching = False
        self._streams = 0
        self.passed_on = 0

    @property
    def senders(self) -> int:
        """Nodes that send through this agent now."""
        return len(self._answers)

    def welcomed(
        self, send: Callable[[AgentMessage], None], interval_s: float, hears: Collection[str]
    ) -> None:
        """A stream to a leader is up, which wants a heartbeat of each node so often. `send` sends on it."""
        self._collection.interval_s = interval_s
        self._send = send if BEATS_RELAYED in hears else None

    def down(self) -> None:
        """The stream to the leader is over: senders must send directly."""
        self._send = None
        self._send_away("the relay has lost its leader")

    def taken(self, order: BeatsTaken) -> None:
        """The leader has this batch."""
        for sender, seq in self._collection.taken(order.number):
            if sender in self._answers:
                self._answers[sender].put_nowait(seq)

    async def serve(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serve the stream of one sender, until either side ends it."""
        self._streams += 1
        sender = str(self._streams)
        why = self._collection.admit(sender) if self._send is not None else "no leader hears this agent now"
        if why:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)
        answers = self._answers[sender] = asyncio.Queue()
        if not self._batching:
            self._batching = True
            self._tasks.begin(self._pass_on())
        reading = asyncio.create_task(self._read(sender, context))
        try:
            while (seq := await answers.get()) is not None:
                await context.write(pb.RelayAnswer(taken_seq=seq))
        finally:
            reading.cancel()
            self._answers.pop(sender, None)
            self._collection.leave(sender)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "send directly, and come again later")

    async def close(self) -> None:
        """Send all senders away."""
        self.down()
        await self._tasks.close()

    async def _read(self, sender: str, context: Any) -> None:
        answers = self._answers[sender]
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                if not 0 < len(message.beat) <= relayed.BEAT_BYTES_MAX:
                    break
                self._collection.add(sender, message.seq, message.beat)
        finally:
            answers.put_nowait(None)

    async def _pass_on(self) -> None:
        """Send batches while there are senders."""
        collection = self._collection
        collection.begin(self._clock())
        try:
            while self._answers:
                await asyncio.sleep(collection.every_s)
                if why := collection.trouble(self._clock()):
                    self._send_away(why)
                elif self._send is not None and (batch := collection.batch()) is not None:
                    self.passed_on += len(batch[1])
                    self._send(relayed.batch(*batch))
        finally:
            self._batching = False

    def _send_away(self, why: str) -> None:
        if self._answers:
            log.warning("%d nodes are to send their heartbeats directly: %s", len(self._answers), why)
        self._collection.close()
        for answers in self._answers.values():
            answers.put_nowait(None)
