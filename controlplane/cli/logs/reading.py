"""Find and read logs through a coordinator, and print them; follow a rank from process to process."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError, UnreachableError
from controlplane.cli.orders.follow import ENDINGS, PAUSE_S, status_by
from controlplane.core.records.logs import NO_END
from controlplane.reporting import log_stints
from controlplane.reporting.log_lines import LogLines
from controlplane.reporting.quantities import size
from controlplane.wire import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.cli.client import AdminClient
    from controlplane.core.records.logs import LogFile
    from controlplane.reporting.log_stints import LogStint
    from controlplane.wire import control_pb2 as pb

LOOK_S = 0.5
"""How often it is asked whether a rank that has ended has another process."""


@dataclass(slots=True)
class FoundLogs:
    """Which logs there are: by member, cut into stints; and why nodes could not say."""

    files: dict[str, LogFile] = field(default_factory=dict)
    stints: list[LogStint] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)  # reasons, by node

    def why(self) -> str:
        """Which nodes could not be asked, as the end of a sentence."""
        return "".join(f"; node {node}: {reason}" for node, reason in self.silent.items())


async def find(admin: AdminClient, job: str, ranks: Sequence[int], *, former: bool) -> FoundLogs:
    """Ask which logs there are. Raises UnreachableError, CliError."""
    found = FoundLogs()
    reply = await admin.list_logs(job, ranks, former=former)
    for row in reply.nodes:
        if row.reason:
            found.silent[row.node] = row.reason
        for file in map(answers.file_from, row.files):
            if file.marks:
                found.files[file.member] = file
                found.stints += log_stints.stints(row.node, file)
    return found


@dataclass(frozen=True, slots=True)
class LogView:
    """How logs are shown. `tail`: lines (NO_END: all); `since_s`: Unix time, 0: from the beginning."""

    job: str
    tail: int = NO_END
    since_s: float = 0.0
    prefix: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing is left out by wish."""
        return self.tail == NO_END and not self.since_s


class RankLog:
    """Prints the log of one rank."""

    def __init__(self, admin: AdminClient, view: LogView, stint: LogStint) -> None:
        self._admin, self._view, self._stint = admin, view, stint
        self._lines = LogLines()
        self._at = stint.from_bytes
        self._begun = False

    async def show(self, *, follow: bool = False) -> None:
        """Print what there is; with `follow` also what comes, until the process ends.

        Raises UnreachableError when the answers break off: called again, it goes on from there."""
        stint, view = self._stint, self._view
        request: dict[str, float] = {"from_bytes": self._at, "end_bytes": stint.end_bytes, "tail": NO_END}
        if not self._begun:
            request |= {"tail": view.tail, "since_s": view.since_s}
        async for block in self._admin.read_log(view.job, stint.node, stint.member, follow=follow, **request):
            self._take(block)
        self._print(self._lines.end())

    async def follow(self) -> None:
        """Print what this rank writes, from process to process, until the job ends."""
        told = False
        while True:
            try:
                await self.show(follow=True)
                stint = await self._next()
            except UnreachableError as error:
                if not told:
                    note(f"rank {self._stint.rank}: {error}; trying again")
                told = True
                stint = await self._moved()
            if stint is None:
                return
            if stint.member == self._stint.member:
                await asyncio.sleep(PAUSE_S)
                continue
            told = False
            note(f"rank {stint.rank} is process {stint.member} on node {stint.node} now")
            self._stint, self._at, self._begun, self._lines = stint, stint.from_bytes, True, LogLines()

    async def _moved(self) -> LogStint | None:
        """Where the rank is, after its log broke off: where it was, if nothing else is known; None: the job
        has ended, and its log cannot be read any more."""
        try:
            ended = await self._over()
            found = await find(self._admin, self._view.job, [self._stint.rank], former=False)
        except CliError:  # the coordinator is away, or the rank is between two processes
            return self._stint
        stint = log_stints.current(found.stints, self._stint.rank)
        if stint is not None and stint.member != self._stint.member:
            await self._last_words()
            return stint
        if ended and self._stint.node in found.silent:
            note(f"rank {self._stint.rank}: what it wrote last cannot be read{found.why()}")
            return None
        return self._stint

    async def _last_words(self) -> None:
        """Print what the process wrote after its log broke off: another one has its rank now."""
        try:
            await self.show()
        except CliError as error:
            rank, job = self._stint.rank, self._view.job
            note(
                f"rank {rank}: what process {self._stint.member} wrote last is missing here: {error}; later: "
                f"holdfast logs {job} --rank {rank} --previous"
            )

    async def _next(self) -> LogStint | None:
        """The process that has this rank now, after its log has ended; None: the job has ended, too."""
        rank, job = self._stint.rank, self._view.job
        while True:
            ended = await self._over()
            try:
                found = await find(self._admin, job, [rank], former=False)
            except UnreachableError:
                raise
            except CliError as error:
                note(f"rank {rank} is not followed any more: {error}")
                return None
            stint = log_stints.current(found.stints, rank)
            if stint is not None and (stint.member != self._stint.member or stint.alive):
                return stint
            if ended:
                return None
            await asyncio.sleep(LOOK_S)

    async def _over(self) -> bool:
        status = await status_by(self._admin, 0.0)
        phases = [row.phase for row in status.jobs if row.job == self._view.job]
        return not phases or phases[0] in ENDINGS

    def _take(self, block: pb.LogBlock) -> None:
        missing = block.from_bytes - self._at
        if missing > 0 and (self._begun or self._view.whole):
            self._print(self._lines.end())
            what = "before this line" if self._begun else "of its beginning"
            note(f"rank {self._stint.rank}: {size(missing)} {what} are not kept any more")
        self._begun, self._at = True, block.from_bytes + len(block.data)
        self._print(self._lines.take(block.data))

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            head = f"[{self._stint.node} {self._stint.rank}] " if self._view.prefix else ""
            print("\n".join(head + line for line in lines), flush=True)


def note(text: str) -> None:
    """Say something that is no line of a log."""
    print(f"holdfast logs: {text}", file=sys.stderr, flush=True)
