"""Keep the end of what each rank has written, so that something of it is left when its node is lost.

The leader asks each node in turn which logs it has, and reads what is new of each rank's, at most the last
TAIL_BYTES: the way that logs take to people (`log_relay.py`), never on the stream of orders, a few nodes at a
time. How old that is at worst follows from the number of nodes. Nothing of it reaches the core or the next
leader, and all of it together is bounded: with very many ranks each keeps less."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.core.records.logs import NO_END, LogFile, ReadLog
from controlplane.daemon.server.log_relay import LogRefused
from controlplane.reporting.quantities import duration, size
from controlplane.wire import control_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.daemon.server.links import Links
    from controlplane.daemon.server.log_relay import LogRelays

TAIL_BYTES = 64 << 10
"""What is kept of each rank, at most."""
TOTAL_BYTES = 64 << 20
"""What is kept of all ranks together."""
EVERY_S = 10.0
"""How often each node is asked, in a small cluster."""
NODES_PER_S = 5.0
"""Nodes asked per second, at most: more of them are asked less often."""
AT_ONCE = 4
"""Nodes asked at the same time."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of one log: `data` are its bytes up to `file.bytes`, as of `at_s` (Unix time)."""

    file: LogFile
    data: bytes
    at_s: float

    @property
    def from_bytes(self) -> int:
        """The place of the first byte."""
        return self.file.bytes - len(self.data)


class LogTails:
    """The ends of logs that one leader term has. `every_s` 0: none are kept. `inherited`: jobs of the leader
    before; what that one had kept of their logs is gone."""

    def __init__(
        self,
        core: Cluster,
        links: Links,
        relays: LogRelays,
        every_s: float = EVERY_S,
        *,
        wall: Callable[[], float] = time.time,
        inherited: frozenset[str] = frozenset(),
    ) -> None:
        self._inherited, self._since_s = inherited, wall()
        self._core, self._links, self._relays = core, links, relays
        self._every_s, self._wall = every_s, wall
        self._kept: dict[tuple[str, str], dict[str, LogTail]] = {}  # (job, node): by member
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Ask all nodes again and again, until cancelled."""
        while self._every_s:
            places = self._places()
            await asyncio.sleep(max(self._every_s, len(places) / NODES_PER_S))
            await self.look()

    async def look(self) -> None:
        """Ask each node with ranks once. One that does not answer keeps what is known of it."""
        state, places = self._core.state, self._places()
        for key in [key for key in self._kept if key[0] not in state.jobs]:
            del self._kept[key]
        ranks = sum(len(job.seats) for job in state.jobs.values())
        each = min(TAIL_BYTES, TOTAL_BYTES // max(1, ranks))
        await asyncio.gather(*(self._ask(job, node, each) for job, node in places))
        self._make_room()

    def _places(self) -> list[tuple[str, str]]:
        """The jobs and nodes with ranks now, of agents that are connected."""
        jobs = (job for job in self._core.state.jobs.values() if not job.ended)
        places = [(job.name, node) for job in jobs for node in job.seat_nodes()]
        return [place for place in places if self._links.connected(place[1])]

    async def _ask(self, job: str, node: str, each: int) -> None:
        async with self._asking:
            try:
                head = await self._relays.head(ReadLog(node, job, self._relays.request()))
            except LogRefused:
                return  # this term ends
            if head.reason:
                log.debug("the ends of logs of node %s are not renewed: %s", node, head.reason)
                return
            before, now = self._kept.get((job, node), {}), {}
            for file in _newest(head.files):
                try:
                    now[file.member] = await self._renewed(job, node, file, before.get(file.member), each)
                except LogRefused as refused:
                    log.debug("the end of the log of %s is not renewed: %s", file.member, refused)
                    if file.member in before:
                        now[file.member] = before[file.member]
            self._kept[job, node] = now

    async def _renewed(
        self, job: str, node: str, file: LogFile, before: LogTail | None, each: int
    ) -> LogTail:
        """The end of a log as it is now. Raises LogRefused."""
        begin = max(file.gone_bytes, file.bytes - each)
        data, at = b"", begin
        if before is not None and before.from_bytes <= file.bytes and before.file.bytes >= begin:
            data = before.data[max(0, begin - before.from_bytes) :]
            at = before.file.bytes
        if at < file.bytes:
            order = ReadLog(node, job, self._relays.request(), file.member, at, file.bytes)
            async for block in self._relays.read(order):
                data = data + block.data if block.from_bytes == at else block.data
                at = block.from_bytes + len(block.data)
        return LogTail(replace(file, bytes=at, alive=False), data[-each:], self._wall())

    def _make_room(self) -> None:
        """Forget the oldest while there is too much."""
        sizes = {key: sum(len(tail.data) for tail in kept.values()) for key, kept in self._kept.items()}

        def age(key: tuple[str, str]) -> float:
            return max((tail.at_s for tail in self._kept[key].values()), default=0.0)

        for key in sorted(self._kept, key=age):
            if sum(sizes.values()) <= TOTAL_BYTES:
                return
            del self._kept[key], sizes[key]

    # ------------------------------------------------------------------ for people

    def files(self, job: str, node: str) -> tuple[LogFile, ...]:
        """The logs of a node of which the end is here, when its agent cannot be asked."""
        if self._links.connected(node):
            return ()
        kept = self._kept.get((job, node), {}).values()
        return tuple(replace(tail.file, gone_bytes=tail.from_bytes) for tail in kept)

    def said(self, job: str, node: str) -> str:
        """What is here of a node's logs, in words."""
        kept = self._kept.get((job, node), {}).values()
        most = max((len(tail.data) for tail in kept), default=0)
        age_s = self._wall() - max((tail.at_s for tail in kept), default=0.0)
        return f"the coordinator has the last {size(most)} of each rank at most, read {duration(age_s)} ago"

    def missing(self, job: str, node: str) -> str:
        """Why nothing is here of the logs of a node whose agent cannot be asked, after a change of leader, in
        words; "": something is, or no leader has gone."""
        if job not in self._inherited or self._kept.get((job, node)) or self._links.connected(node):
            return ""
        ago = duration(max(0.0, self._wall() - self._since_s))
        return (
            f"the leader changed {ago} ago, and the ends of logs that the one before had in its memory are "
            f"gone: this one has read nothing of node {node}"
        )

    def nodes(self, job: str) -> list[str]:
        """The nodes whose agents cannot be asked, and of whose logs something is here, or was before the
        leader changed: nobody knows any more which lost nodes had logs of this job."""
        kept = {node: None for name, node in self._kept if name == job and not self._links.connected(node)}
        lost = [name for name, node in self._core.state.nodes.items() if node.shown == "lost"]
        return [*kept, *(node for node in lost if node not in kept and self.missing(job, node))]

    def blocks(self, order: ReadLog) -> list[pb.LogBlock] | None:
        """The part that is asked for, as far as it is here; None: nothing of this log is.

        Times are not known here, so `since_s` leaves nothing out."""
        tail = self._kept.get((order.job, order.node), {}).get(order.member)
        if tail is None or self._links.connected(order.node):
            return None
        end = tail.file.bytes if order.end_bytes == NO_END else min(order.end_bytes, tail.file.bytes)
        begin = max(tail.from_bytes, order.from_bytes)
        data = tail.data[begin - tail.from_bytes : max(0, end - tail.from_bytes)]
        if order.tail != NO_END:
            lines = data.splitlines(keepends=True)
            kept = b"".join(lines[len(lines) - order.tail :] if order.tail < len(lines) else lines)
            begin, data = begin + len(data) - len(kept), kept
        return [pb.LogBlock(from_bytes=begin, data=data)] if data else []


def _newest(files: tuple[LogFile, ...]) -> list[LogFile]:
    """Of each rank the log of its last process here; of spares none."""
    found: dict[int, LogFile] = {}
    for file in files:
        last = file.marks[-1] if file.marks else None
        if last is None or last.rank < 0:
            continue
        other = found.get(last.rank)
        if other is None or _age(file) > _age(other):
            found[last.rank] = file
    return list(found.values())


def _age(file: LogFile) -> tuple[int, float]:
    return file.marks[-1].generation, file.marks[-1].at_s
