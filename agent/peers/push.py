"""Send the newest released snapshot of each member to its replica holders, in the background.

There is one stream per replica holder at a time. A snapshot that is on its way is finished first, then the
newest one goes. What fails is retried after a pause that grows, with jitter. A former replica holder keeps
its copy until the new holders have theirs: it may be all that is left of the state of a member that was
replaced."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from agent.peers import wire
from agent.peers.blocks import PeerError, blocks, digest, places
from agent.peers.rights import job_of
from agent.peers.threads import in_thread
from controlplane.wire import peer_pb2 as pb
from holdfast.ipc.shm import ArenaError
from holdfast.ipc.skips import CopyState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import ThreadPoolExecutor

    from agent.peers.blocks import SnapshotInfo
    from agent.peers.offer import Offer
    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.core.records.model import Partner

_BACKOFF_S = (0.25, 30.0)
_DROP_TRIES = 5
"""How often a former replica holder is asked to drop a copy, if it does not answer."""
_FAILURES = (*wire.BROKEN, ArenaError, ValueError)
LINGER_S = 300.0
"""How long copies stay with former holders when this node owns nothing of the job any more.

The node that owns that state now may not have copied it yet."""
_ALIVE = ("working", None)
"""Answers that mean only "still working"; None: one that a newer version sends and this one does not know."""
log = logging.getLogger("holdfast.agent.peers")


@dataclass(slots=True)
class _Line:
    """What is to be done at one replica holder's address, and the task that does it."""

    address: str
    due: dict[str, str] = field(default_factory=dict)  # members to copy: member -> job
    drops: dict[str, int] = field(default_factory=dict)  # copies to drop: member -> tries left
    under_way: str = ""  # the member that is being copied; "": none
    failing: bool = False  # the newest try has failed
    task: asyncio.Task[None] | None = None


class Pushes:
    """Keeps replica holders supplied.

    `offer(member, job, released)` opens the newest snapshot up to that step, pinned, or returns None; `vouch`
    is called with each snapshot before it leaves; `show(member, copies)` when a member's newest released
    snapshot is owed to a holder, and when it is not any more: it has arrived, or a try has failed. `count`
    increases the metrics."""

    def __init__(
        self,
        offer: Callable[[str, str, int], Offer | None],
        pool: ThreadPoolExecutor,
        timeout_s: float,
        bytes_per_s: float,
        count: Callable[[str, int], None],
        *,
        vouch: Callable[[SnapshotInfo], None],
        show: Callable[[str, CopyState], None],
        linger_s: float = LINGER_S,
        access: ClientCredentials | None = None,
    ) -> None:
        self._access = access
        self._offer, self._pool, self._timeout_s, self._count = offer, pool, timeout_s, count
        self._vouch, self._show = vouch, show
        self._shown: dict[str, None] = {}  # members of which other nodes are to keep copies, as was shown
        self._pace, self._linger_s = CopyPace(bytes_per_s), linger_s
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        self._wanted: dict[str, dict[tuple[str, str], None]] = {}  # job -> {(member, address)}
        self._left: dict[str, dict[tuple[str, str], None]] = {}  # job -> copies to drop later
        self._released: dict[str, int] = {}
        self._stored: dict[tuple[str, str], tuple[int, int]] = {}
        self._lines: dict[str, _Line] = {}

    def replicate(self, job: str, holders: tuple[Partner, ...]) -> None:
        """Copy these members from now on, and no others of the job. With none, existing copies stay for a
        while."""
        self._stop_lingering(job)
        wanted = dict.fromkeys((holder.member, holder.address) for holder in holders)
        before, left = self._wanted.get(job, {}), self._left.setdefault(job, {})
        left.update(dict.fromkeys(pair for pair in before if pair not in wanted))
        self._wanted[job] = wanted
        for pair in wanted:
            left.pop(pair, None)
            # The order is repeated because the leader misses the copy: ask the holder
            self._stored.pop(pair, None)
            self._due(job, *pair)
        self._tell(member for member, _ in (*before, *wanted))
        if wanted:
            self._settle(job)
        elif left:
            loop = asyncio.get_running_loop()
            self._lingering[job] = loop.call_later(self._linger_s, self._settle, job)

    def release(self, job: str, step: int) -> None:
        """Snapshots up to `step` are READY on all ranks: send the replica holders the newest of them."""
        self._released[job] = step
        wanted = self._wanted.get(job, {})
        for member, address in wanted:
            self._due(job, member, address)
        self._tell(member for member, _ in wanted)

    def complete(self, job: str) -> None:
        """The job is over: stop copying, and have the holders drop its copies."""
        self._stop_lingering(job)
        pairs = {**self._wanted.pop(job, {}), **self._left.pop(job, {})}
        self._released.pop(job, None)
        for member, address in pairs:
            self._drop(member, address)
        self._tell(member for member, _ in pairs)

    async def stop(self) -> None:
        """Cancel all streams, and wait for them."""
        for job in list(self._lingering):
            self._stop_lingering(job)
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lines.clear()

    @property
    def waiting(self) -> int:
        """How many copies have not arrived yet."""
        return sum(len(line.due) for line in self._lines.values())

    def _tell(self, members: Iterable[str]) -> None:
        """Call `show` for each of these members, also again: its arena may be new. Not for one of which no
        node is to keep copies, unless that has changed."""
        for member in members:
            copies = self._copies(member)
            if copies is not CopyState.NONE:
                self._shown[member] = None
            elif member in self._shown:
                del self._shown[member]
            else:
                continue
            self._show(member, copies)

    def _copies(self, member: str) -> CopyState:
        lines = self._lines.values()
        if any(not line.failing and (member in line.due or member == line.under_way) for line in lines):
            return CopyState.OWED
        kept = any(member == other for other, _ in self._wanted.get(job_of(member), {}))
        return CopyState.SETTLED if kept else CopyState.NONE

    def _due(self, job: str, member: str, address: str) -> None:
        line = self._line(address)
        line.drops.pop(member, None)
        line.due[member] = job

    def _drop(self, member: str, address: str) -> None:
        line = self._line(address)
        line.due.pop(member, None)
        line.drops[member] = _DROP_TRIES
        self._stored.pop((member, address), None)

    def _stop_lingering(self, job: str) -> None:
        timer = self._lingering.pop(job, None)
        if timer is not None:
            timer.cancel()

    def _settle(self, job: str) -> None:
        """Have former replica holders drop copies whose successors are whole by now."""
        wanted, left = self._wanted.get(job, {}), self._left.get(job, {})
        for pair in list(left):
            of_member = [other for other in wanted if other[0] == pair[0]] or list(wanted)
            if all(other in self._stored for other in of_member):
                del left[pair]
                self._drop(*pair)

    def _line(self, address: str) -> _Line:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(address)
            line.task = asyncio.get_running_loop().create_task(self._serve(line))
        return line

    async def _serve(self, line: _Line) -> None:
        """Work off what is due at one replica holder. A new task starts when something is due again."""
        pause_s = _BACKOFF_S[0]
        while line.due or line.drops:
            try:
                await self._one(line)
                pause_s = _BACKOFF_S[0]
            except Exception as error:  # retried in any case; an unforeseen one is logged with its traceback
                unforeseen = not isinstance(error, _FAILURES)
                reason = await wire.reason(None, error)
                log.warning(
                    "the replica holder at %s, trying again: %s", line.address, reason, exc_info=unforeseen
                )
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, _BACKOFF_S[1])
        if self._lines.get(line.address) is line:
            del self._lines[line.address]

    async def _one(self, line: _Line) -> None:
        for member in list(line.drops):
            if member in line.drops:  # unless it was wanted again while another one was dropped
                await self._ask_to_drop(line, member)
        member, job = next(iter(line.due.items()), ("", ""))
        if not member:
            return
        del line.due[member]
        line.under_way = member
        try:
            await self._push(job, member, line.address)
            line.failing = False
        except BaseException:
            line.failing = True
            if (member, line.address) in self._wanted.get(job, {}):
                line.due.setdefault(member, job)
            raise
        finally:
            line.under_way = ""
            self._tell([*line.due, member])
        self._settle(job)

    async def _ask_to_drop(self, line: _Line, member: str) -> None:
        line.drops[member] -= 1
        if line.drops[member] < 0:
            log.warning(
                "the replica holder at %s was not reached, and may keep its copy of %s", line.address, member
            )
            del line.drops[member]
            return
        async with wire.channel(line.address, self._access) as channel:
            request = pb.DropRequest(member=member, job=job_of(member))
            await wire.PeerCalls(channel).drop(request, timeout=self._timeout_s)
        line.drops.pop(member, None)

    async def _push(self, job: str, member: str, address: str) -> None:
        if (member, address) not in self._wanted.get(job, {}) or job not in self._released:
            return
        offer = await in_thread(self._pool, self._offer, member, job, self._released[job])
        if offer is None:
            return
        try:
            if self._stored.get((member, address)) == offer.held.age:
                return
            self._vouch(offer.held)
            async with wire.channel(address, self._access) as channel:
                await self._converse(wire.PeerCalls(channel).put(), offer, address)
            self._stored[member, address] = offer.held.age
            self._count("peer_copies_sent", 1)
        finally:
            await in_thread(self._pool, offer.close)

    async def _converse(self, call: Any, offer: Offer, address: str) -> None:
        try:
            await self._send(call, offer, address)
        except wire.BROKEN as error:
            reason = await wire.reason(call, error)
            self._count("peer_copies_failed", 1)
            if reason.startswith(grpc.StatusCode.RESOURCE_EXHAUSTED.name):
                self._count("peer_no_room", 1)
            raise PeerError(f"{offer.held} could not be copied: {reason}") from error
        finally:
            call.cancel()

    async def _send(self, call: Any, offer: Offer, address: str) -> None:
        held, timeout_s = offer.held, self._timeout_s
        await wire.write(call, pb.PutMessage(snapshot=wire.message_of(held)), timeout_s, address)
        answer = await self._answer(call, address)
        if answer.WhichOneof("body") == "stored":
            return
        wanted = _wanted_places(held, answer.lacking.chunks)
        for block in blocks(offer.memory, wanted):
            await self._pace.take(len(block))
            await wire.write(call, wire.block(block), timeout_s, address)
            self._count("peer_sent_bytes", len(block))
        finish = pb.PutMessage(finish=pb.Finish(digest=digest(held.digests)))
        await wire.write(call, finish, timeout_s, address)
        answer = await self._answer(call, address)
        if answer.WhichOneof("body") != "stored":
            raise PeerError(f"{address} sent an answer that is not allowed here")

    async def _answer(self, call: Any, address: str) -> Any:
        while True:
            answer = await wire.read(call, self._timeout_s, address)
            if answer.WhichOneof("body") not in _ALIVE:
                return answer


class CopyPace:
    """Limits the bytes per second; 0: no limit."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def take(self, nbytes: int) -> None:
        """Wait until `nbytes` may be sent."""
        if self._bytes_per_s <= 0:
            return
        now = asyncio.get_running_loop().time()
        turn = max(self._free_at, now)
        self._free_at = turn + nbytes / self._bytes_per_s
        await asyncio.sleep(turn - now)


def _wanted_places(held: SnapshotInfo, chunks: Any) -> list[tuple[int, int]]:
    every = places(held.data_bytes, held.header_bytes)
    wanted = list(chunks)
    if wanted != sorted(set(wanted)) or (wanted and not 0 <= wanted[0] <= wanted[-1] < len(every)):
        raise PeerError(f"{held}: chunks were requested that it does not have")
    return [every[number] for number in wanted]
