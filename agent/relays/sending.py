"""Send this node's short heartbeats through the relay that the leader has named, while that is of use."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from agent.deciding.beat_route import BeatRoute
from agent.peers import wire
from controlplane.background_tasks import BackgroundTasks, together
from controlplane.settings import SettingsError
from controlplane.wire import peer_pb2 as pb
from controlplane.wire import relayed

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.wire.control_pb2 import StepBeat
    from controlplane.wire.relayed import RelayBeats

CONNECT_S = 5.0
"""A relay that cannot be reached within this time is of no use."""
log = logging.getLogger("holdfast.agent.relays")


class BeatSender:
    """Carries out RelayBeats. `sends` is asked for each short heartbeat; what it refuses goes directly."""

    def __init__(
        self,
        node: str,
        incarnation: int,
        access: ClientCredentials,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._incarnation, self._access, self._clock = node, incarnation, access, clock
        self.route = BeatRoute()
        self.sent = 0
        self._key = b""
        self._tasks = BackgroundTasks()
        self._talk: asyncio.Task[None] | None = None
        self._unsent: asyncio.Queue[pb.RelayRequest] = asyncio.Queue()

    def welcomed(self, key: bytes) -> None:
        """A stream to a leader is up. Without a key of its own nothing may go through a relay."""
        self._key = key if len(key) == relayed.KEY_BYTES else b""

    def down(self) -> None:
        """The stream to the leader is over: the next one may lead to another, who names another relay."""
        self._key = b""
        self.route.name("", "")
        self._hang_up()

    def order(self, order: RelayBeats) -> None:
        """Use this relay from now on."""
        if self.route.name(order.relay, order.address):
            self._hang_up()
            log.info("heartbeats go %s", f"through {order.relay}" if order.address else "directly")

    def sends(self, beat: StepBeat) -> bool:
        """Give this heartbeat to the relay. Returns False if it must go directly."""
        now, was_open = self._clock(), self.route.open
        if self._key and self.route.wants(now) and self._talk is None:
            self._talk = self._tasks.begin(self._converse(self.route.address))
        if not (self._key and self.route.through(now, beat.seq)):
            if was_open:
                log.warning("heartbeats go directly: %s", self.route.why)
                self._hang_up()
            return False
        sealed = relayed.seal(self._node, self._incarnation, beat, self._key)
        self._unsent.put_nowait(pb.RelayRequest(beat=sealed, seq=beat.seq))
        self.sent += 1
        return True

    async def close(self) -> None:
        """End the stream to the relay."""
        self._hang_up()
        await self._tasks.close()

    def _hang_up(self) -> None:
        if self._talk is not None:
            self._talk.cancel()
            self._talk = None

    async def _converse(self, address: str) -> None:
        """Run one stream to a relay, until it ends or is cancelled."""
        self._unsent = asyncio.Queue()
        try:
            async with wire.channel(address, self._access) as channel:
                call = wire.PeerCalls(channel).relay()
                async with asyncio.timeout(CONNECT_S):
                    await call.wait_for_connection()
                self.route.opened()
                await together(self._write(call), self._read(call))
        except BaseExceptionGroup as group:
            await self._failed(group.exceptions[0])
        except (*wire.BROKEN, SettingsError) as error:
            await self._failed(error)

    async def _failed(self, error: BaseException) -> None:
        if not isinstance(error, (*wire.BROKEN, SettingsError)):
            raise error
        if self._talk is not asyncio.current_task():
            return  # hung up in the moment in which it failed: the route is another stream's by now
        self._talk = None
        self.route.failed(self._clock(), f"{self.route.relay}: {await wire.reason(None, error)}")
        log.warning("heartbeats go directly: %s", self.route.why)

    async def _write(self, call: Any) -> None:
        while True:
            await call.write(await self._unsent.get())

    async def _read(self, call: Any) -> None:
        while True:
            answer = await wire.read(call, float("inf"), self.route.relay)
            self.route.taken(answer.taken_seq)
