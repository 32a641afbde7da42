"""Keep the newest part of what each rank of this node has written, through the ends of its processes.

Each process writes to a log of its own, straight from its standard output and error. A rank that was started
again has several. Of all logs of one rank together the newest `bytes_max` bytes are kept: what is older is
given back to the disk, where it is (host/holes.py). No log is moved or cut short while it is written, so that
no line gets lost."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from agent.host import holes
from agent.logs.index import LogIndex
from agent.peers.rights import job_of
from controlplane.core.records.logs import LogFile, LogMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.node_state import NodeState
    from agent.host.paths import Paths
    from controlplane.core.records.model import MemberStatus

LOOK_S = 1.0
"""How often the sizes of logs are noted, and how exactly a part of a log is found by time."""
SPARE_SHARE = 16
"""When a log is over its limit, one part in so many is given back on top: not a block for each line."""
log = logging.getLogger("holdfast.agent.logs")


class _Kept(NamedTuple):
    """How much of a log is there: the bytes from `begin` up to `end`."""

    begin: int
    end: int


class RankLogs:
    """The logs of one node's members, of those that have ended too.

    `bytes_max`: how much is kept per rank; 0: everything."""

    def __init__(
        self, paths: Paths, members: NodeState, bytes_max: int, wall: Callable[[], float] = time.time
    ) -> None:
        self._paths, self._members, self._bytes_max, self._wall = paths, members, bytes_max, wall
        self._indexes: dict[str, LogIndex] = {}
        self._trouble = ""

    def open(self) -> None:
        """Take over the marks of earlier agents."""
        for path in sorted(self._paths.log_index.glob("*.marks")):
            self._indexes[path.stem] = LogIndex(path)

    def note(self, status: MemberStatus) -> None:
        """Note how much a member has written, and as what. Trouble with the file is logged once.

        A log that is known can be read: it is there, empty, before its process begins."""
        index = self._indexes.get(status.member)
        if index is None:
            self._begin(status.member)
            path = self._paths.log_index / f"{status.member}.marks"
            index = self._indexes[status.member] = LogIndex(path)
        written = self._kept(status.member).end
        try:
            index.note(LogMark(written, self._wall(), status.rank, status.generation))
        except OSError as error:
            self._warn(f"what is written when is not kept for the next agent: {error}")

    async def run(self) -> None:
        """Look at all logs again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for member in self._members:
                if member.alive:
                    self.note(member.status)
            if self._bytes_max:
                await asyncio.to_thread(self.limit)

    def knows(self, member: str) -> bool:
        """Whether this node has, or had, a log of this member."""
        return member in self._indexes

    def alive(self, member: str) -> bool:
        """Whether its process may still write."""
        known = self._members.get(member)
        return known is not None and known.alive

    def since(self, member: str, at_s: float) -> int:
        """See LogIndex.since."""
        index = self._indexes.get(member)
        return index.since(at_s) if index is not None else 0

    def files(self, job: str) -> tuple[LogFile, ...]:
        """The logs of a job that this node has."""
        found = []
        for member, index in self._indexes.items():
            if job_of(member) == job:
                begin, end = self._kept(member)
                found.append(LogFile(member, end, begin, self.alive(member), index.changes()))
        return tuple(found)

    def limit(self) -> None:
        """Give back what is too much, the oldest first."""
        groups: dict[tuple[str, int | str], list[str]] = {}
        for member, index in list(self._indexes.items()):
            key = index.rank if index.rank >= 0 else member
            groups.setdefault((job_of(member), key), []).append(member)
        for members in groups.values():
            room = self._bytes_max
            for member in sorted(members, key=lambda each: self._indexes[each].begun_s, reverse=True):
                begin, end = self._kept(member)
                if end - begin > room:
                    self._cut(member, end - (room - room // SPARE_SHARE))
                room = max(0, room - (end - begin))

    def _begin(self, member: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.close(os.open(self._paths.log(member), flags, 0o600))
        except OSError as error:
            self._warn(f"the log of {member} cannot be made: {error}")

    def _kept(self, member: str) -> _Kept:
        try:
            descriptor = os.open(self._paths.log(member), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return _Kept(0, 0)
        try:
            return _Kept(holes.begin(descriptor), os.fstat(descriptor).st_size)
        except OSError:
            return _Kept(0, 0)
        finally:
            os.close(descriptor)

    def _cut(self, member: str, end_bytes: int) -> None:
        path = self._paths.log(member)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                holes.punch(descriptor, end_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._warn(f"{path} grows beyond {self._bytes_max} bytes, which cannot be helped: {error}")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s", trouble)
            self._trouble = trouble
