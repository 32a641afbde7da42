"""Tell the leader how processes ended: exit code or signal, the last lines of the log, what the kernel says.

The leader looks for the first cause of an incident in the ends of all its ranks. What is sent is bounded, and
secrets are hidden. A process that Holdfast itself ended says nothing by its log: only that it was ended."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
import time
from typing import TYPE_CHECKING

from agent.host.kernel_log import KernelLog
from agent.host.memory_kills import MemoryKillCounter
from controlplane.background_tasks import BackgroundTasks
from holdfast import masking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.deciding.effects import ReportEnd
    from agent.deciding.member import LocalMember
    from controlplane.core.records.diagnosis import RankEnded

TEXT_BYTES = 16 << 10
"""How much of a log is read, from its end: a traceback of fifty frames is 6 KiB."""
LINE_CHARS = 2000
"""A longer line is cut, as its reader would."""
LOOK_S = 1.0
"""How often the counters of kills for want of memory are read while ranks live."""


class RankEnds:
    """The ends of one node's processes. `log(member)` is the path of a log.

    `pids_are_ours`: the numbers of the ranks' processes are those of this container. Otherwise nothing is
    asked of the kernel: the same numbers may be those of other processes here."""

    def __init__(
        self,
        members: Iterable[LocalMember],
        log: Callable[[str], Path],
        send: Callable[[RankEnded], None],
        *,
        pids_are_ours: bool,
    ) -> None:
        self._members, self._log, self._send, self._ours = members, log, send, pids_are_ours
        self._memory, self._kernel = MemoryKillCounter(), KernelLog()
        self._tasks = BackgroundTasks()

    async def run(self) -> None:
        """Read the counters of the cgroups of the living ranks, again and again, until cancelled."""
        while self._ours:
            self._memory.look([each.status.pid for each in self._members if each.alive and each.status.pid])
            await asyncio.sleep(LOOK_S)

    def report(self, effect: ReportEnd) -> None:
        """Report one end, as soon as its log has been read."""
        self._tasks.begin(self._report(effect))

    async def close(self) -> None:
        """Give up the reports that are not made yet."""
        await self._tasks.close()
        self._kernel.close()

    async def _report(self, effect: ReportEnd) -> None:
        end, at_s = effect.end, time.time() - max(0.0, effect.age_s)
        kills = self._memory.at_end(effect.pid)
        path = self._log(end.member)
        text, skipped_bytes, reason = "", 0, ""
        if not end.ordered:
            text, skipped_bytes, reason = await asyncio.to_thread(last_lines, path)
        self._send(
            dataclasses.replace(
                end,
                at_s=max(0.0, at_s),
                log=str(path),
                text=text,
                skipped_bytes=skipped_bytes,
                no_text=reason,
                oom_kills=kills.kills,
                memory_limit_bytes=kills.limit_bytes,
                cgroup=kills.cgroup,
                kernel_text=self._kernel.naming(effect.pid) if effect.pid and self._ours else "",
            )
        )


def last_lines(path: Path, most: int = TEXT_BYTES) -> tuple[str, int, str]:
    """The last lines of a log as text without secrets and control characters, how many bytes before them were
    left out, and why nothing could be read ("": it could)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "", 0, f"{path}: {error.strerror}"
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "", 0, f"{path}: it is no regular file"
        skipped = max(0, status.st_size - most)
        data = os.pread(descriptor, most, skipped)
    except OSError as error:
        return "", 0, f"{path}: {error.strerror}"
    finally:
        os.close(descriptor)
    if skipped:
        whole = data.find(b"\n") + 1  # 0: one line that is longer than all that is read
        data, skipped = data[whole:], skipped + whole
    return "\n".join(_shown(each) for each in data.decode(errors="replace").split("\n")), skipped, ""


def _shown(line: str) -> str:
    """A line without secrets. What a progress bar has overwritten is left out with its carriage returns."""
    shown = next((part for part in reversed(line.split("\r")) if part.strip()), "")[:LINE_CHARS]
    return masking.line("".join(each if each.isprintable() or each == "\t" else " " for each in shown))
