"""Bring a copy that a peer keeps into the arena of a member of this node, and verify every byte of it.

Each chunk is compared with its xxh3 digest as it arrives, and the whole with the blake3 that the agent of the
snapshot's rank vouched for, before the slot becomes READY. So a peer that alters a copy cannot put it in
front of a rank."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent.peers import wire
from agent.peers.blocks import PeerError, blocks, check, check_member, places
from agent.peers.filling import Filling, header_of
from agent.peers.threads import in_thread
from agent.peers.vouching import Altered, SnapshotHasher
from controlplane.core.records import effects, events
from controlplane.wire import peer_pb2 as pb
from holdfast.ipc import layout
from holdfast.ipc.shm import ArenaError, touch
from holdfast.ipc.skips import Skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, ThreadPoolExecutor

    from agent.peers.blocks import SnapshotInfo
    from agent.peers.copies import KeptCopies
    from controlplane.access.client_credentials import ClientCredentials
    from holdfast.ipc.arena import Arena, SlotWriter

_ANY_STEP = 1 << 62
_FAILURES = (*wire.BROKEN, ArenaError, ValueError)
log = logging.getLogger("holdfast.agent.peers")


class Fetches:
    """Carries out Fetch orders, each once while it runs.

    `room(member, slot_bytes)` opens or creates the member's arena, unless its rank has gone on; `loaded`
    receives the member whose arena changed; `send_event` sends each result to the leader."""

    def __init__(
        self,
        *,
        copies: KeptCopies,
        room: Callable[[str, int], Arena],
        pool: ThreadPoolExecutor,
        timeout_s: float,
        incarnation: int,
        send_event: Callable[[events.Event], None],
        loaded: Callable[[str], None],
        access: ClientCredentials | None = None,
    ) -> None:
        self._access = access
        self._copies, self._room, self._pool = copies, room, pool
        self._timeout_s, self._incarnation, self._send_event = timeout_s, incarnation, send_event
        self._loaded = loaded
        self._running: dict[effects.Fetch, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.address = ""
        """This agent's own address: a copy that it keeps itself is read without a network."""

    def order(self, order: effects.Fetch) -> None:
        """Begin to carry out an order, unless it runs already."""
        if order not in self._running:
            self._running[order] = asyncio.get_running_loop().create_task(self._carry_out(order))

    async def stop(self) -> None:
        """Cancel what runs, and wait for it."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, order: effects.Fetch) -> None:
        reason, altered = "", False
        try:
            async with self._locks.setdefault(order.member, asyncio.Lock()):
                await self._fetch(order)
                self._loaded(order.member)
        except Exception as error:  # reported to the leader; an unforeseen one is logged with its traceback
            reason, altered = await wire.reason(None, error), isinstance(error, Altered)
            unforeseen = not isinstance(error, _FAILURES)
            log.warning(
                "the snapshot of %s could not be fetched: %s", order.source, reason, exc_info=unforeseen
            )
        finally:  # before the result is sent: the leader may answer by ordering it again
            del self._running[order]
        self._send_event(
            events.Fetched(
                order.node,
                self._incarnation,
                order.job,
                order.member,
                order.source,
                order.step,
                reason,
                altered,
            )
        )

    async def _fetch(self, order: effects.Fetch) -> None:
        for member in (order.member, order.source):
            check_member(member)
        if order.address == self.address:
            await in_thread(self._pool, self._copy, order)
            return
        async with wire.channel(order.address, self._access) as channel:
            calls = wire.PeerCalls(channel)
            reply = await calls.have(
                pb.HaveRequest(member=order.source, job=order.job), timeout=self._timeout_s
            )
            held = _chosen(order, [wire.held_from(copy) for copy in reply.copies])
            target = await in_thread(self._pool, self._begin, order, held)
            if target is None:
                return
            try:
                await self._receive(calls, order, target)
            except BaseException:
                await in_thread(self._pool, target.close)
                raise
            self._pool.submit(target.close)  # unmapping takes a while, and nothing waits for it

    async def _receive(self, calls: wire.PeerCalls, order: effects.Fetch, target: _Target) -> None:
        call = calls.get(
            pb.GetRequest(member=order.source, step=order.step, generation=order.generation, job=order.job)
        )
        try:
            first = await wire.read(call, self._timeout_s, order.address)
            if isinstance(first, memoryview) or first.WhichOneof("body") != "snapshot":
                raise PeerError(f"{order.address} began with something other than a snapshot")
            held = wire.held_from(first.snapshot)
            filling = target.fill(order, held, self._pool)
            while not filling.whole:
                block = await wire.read(call, self._timeout_s, order.address)
                if not isinstance(block, memoryview):
                    raise PeerError(f"{order.address} sent something other than a block")
                filling.take(block)
            await in_thread(self._pool, target.ready, order, held)
        finally:
            call.cancel()

    def _copy(self, order: effects.Fetch) -> None:
        """Copy a snapshot that this agent keeps itself, from memory to memory."""
        with self._copies.reading(order.source, order.step, order.generation) as (slot, held):
            target = self._begin(order, held)
            if target is None:
                return
            try:
                filling = target.fill(order, held)
                memory = slot.arena.area(slot.index)
                for block in blocks(memory, places(held.data_bytes, held.header_bytes)):
                    filling.take(block)
                target.ready(order, held)
            finally:
                target.close()

    def _begin(self, order: effects.Fetch, held: SnapshotInfo) -> _Target | None:
        """Take a slot of the member's arena, which is created when there is none that is large enough.

        None when the snapshot is in the arena already."""
        arena = self._room(order.member, held.room)
        try:
            if arena.find(held.step, generation=held.generation, shard=held.shard) is not None:
                arena.close()
                return None
            writer = arena.begin(held.step, held.generation, released_step=_ANY_STEP, held=True)
        except BaseException:
            arena.close()
            raise
        if isinstance(writer, Skip):
            arena.close()
            raise PeerError(f"{held} cannot be put into the arena of {order.member} now: {writer}")
        touch(writer.memory[: held.room])  # else each page is mapped as its block comes: most of the copying
        return _Target(arena, writer)


class _Target:
    """A slot of a member's arena that is being filled."""

    def __init__(self, arena: Arena, writer: SlotWriter) -> None:
        self._arena, self._writer = arena, writer
        self._hasher: SnapshotHasher | None = None
        self._open = True

    def fill(self, order: effects.Fetch, held: SnapshotInfo, pool: Executor | None = None) -> Filling:
        """Begin to fill the slot with the snapshot's blocks, whose digests are taken in `pool`, or here.

        Raises PeerError when the snapshot is not the one ordered, ArenaError when the slot is too small."""
        check(held)
        _chosen(order, [held])
        if held.room > self._arena.slot_bytes:
            raise ArenaError(
                f"{held} of {held.data_bytes} bytes does not fit the slots of {self._arena.slot_bytes} bytes "
                f"in {self._arena.path}"
            )
        every = range(len(places(held.data_bytes, held.header_bytes)))
        self._hasher = SnapshotHasher(held, pool) if order.digest else None
        came = self._hasher.add if self._hasher is not None else None
        return Filling(self._writer.memory, held, every, came)

    def ready(self, order: effects.Fetch, held: SnapshotInfo) -> None:
        """Declare the slot READY. Raises Altered, before any rank can see it, when its digest is not the
        vouched one."""
        if self._hasher is not None and self._hasher.digest != order.digest:
            raise Altered(
                f"{order.address} sent altered data for {held}: its "
                f"digest is {self._hasher.digest:.16}, the agent of that rank vouched for {order.digest:.16}"
            )
        header = header_of(self._writer.memory, held)
        layout.decode(header, held.data_bytes)
        self._writer.layout(header, held.data_bytes)
        self._writer.ready()
        self._open = False

    def close(self) -> None:
        """Close the arena. A slot that is not READY is given back empty."""
        if self._open:
            self._writer.abandon()
        self._arena.close()


def _chosen(order: effects.Fetch, copies: list[SnapshotInfo]) -> SnapshotInfo:
    """The copy that was ordered. Raises PeerError when it is not among these."""
    for held in copies:
        if (held.member, held.job, held.step, held.generation) == (
            order.source,
            order.job,
            order.step,
            order.generation,
        ):
            return held
    there = ", ".join(map(str, copies)) or "no snapshot of it"
    raise PeerError(
        f"snapshot {order.step} of {order.source} (generation {order.generation}) is not at {order.address}: "
        f"it has {there}"
    )
