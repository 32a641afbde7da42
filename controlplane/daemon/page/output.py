"""Read the end of a rank's log, or where ranks are now, when somebody at the page asks.

The same as `holdfast logs` and `holdfast stacks`: through the same methods, by the same rules, bounded for a
browser. Nothing is read before somebody asks. What ranks wrote is neutralised: no control character of theirs
reaches a screen, or a terminal into which the text is pasted."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from controlplane.access.roles import ADMIN, RULES
from controlplane.core.records.logs import NO_END
from controlplane.daemon.page.actions import PageContext, permitted
from controlplane.daemon.page.http import HttpRefused
from controlplane.daemon.server.admin import Admin
from controlplane.reporting import log_stints
from controlplane.reporting.log_lines import LogLines
from controlplane.wire import answers
from controlplane.wire import control_pb2 as pb
from holdfast.neutral import neutral

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from controlplane.access.callers import Caller
    from controlplane.core.records.logs import LogFile
    from controlplane.daemon.server.context import ServerContext
    from controlplane.reporting.log_stints import LogStint

LOG_KIB = 64
"""KiB of a log's end that are shown unless a request says another number."""
LOG_KIB_MAX = 256
STACKS_MAX = 16
"""Ranks that one request asks for their stacks."""
STACKS_CHARS_MAX = 256 << 10
"""Characters of one rank's stacks. The rest is left out, and that is said."""
READ_TIMEOUT_S = 20.0
_METHODS = {"log": ("ListLogs", "ReadLog"), "stacks": ("Stacks",)}
"""What can be read, and the methods of Admin that it takes."""


def readable(caller: Caller) -> list[str]:
    """Return what this caller may read, whatever the job."""

    def may(method: str) -> bool:
        return caller.role is None or caller.role in RULES[f"/{ADMIN}/{method}"].roles

    return [name for name, methods in _METHODS.items() if all(map(may, methods))]


async def read(front: ServerContext, caller: Caller, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Read as this caller. Raises HttpRefused, also when the caller may not."""
    found = _READERS.get(name)
    if found is None:
        reason = f"{name!r:.80} cannot be read here; known are {', '.join(_READERS)}"
        raise HttpRefused(HTTPStatus.NOT_FOUND, reason)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await found(front, caller, document)
    except TimeoutError:
        reason = f"nothing more has arrived within {READ_TIMEOUT_S:g} s: try again"
        raise HttpRefused(HTTPStatus.SERVICE_UNAVAILABLE, reason) from None


async def _log(front: ServerContext, caller: Caller, document: dict[str, Any]) -> dict[str, Any]:
    """Return the end of the log of the process that has a rank; `previous`: of the one before.

    `reason` says why there is none, or which nodes could not say."""
    rank = _whole(document, "rank", None, (1 << 31) - 1)
    bytes_max = _whole(document, "kib", LOG_KIB, LOG_KIB_MAX) << 10
    job, previous = document.get("job"), document.get("previous", False) is True
    fields = {"job": job, "ranks": [rank], "former": previous}
    listing = permitted(caller, "ListLogs", pb.ListLogsRequest, fields)
    permitted(caller, "ReadLog", pb.ReadLogRequest, {"job": job})
    reply = await Admin(front).ListLogs(listing, PageContext())
    files: dict[str, LogFile] = {}
    stints: list[LogStint] = []
    for row in reply.nodes:
        for file in (found for found in map(answers.file_from, row.files) if found.marks):
            files[file.member] = file
            stints += log_stints.stints(row.node, file)
    silent = [f"node {row.node}: {row.reason}" for row in reply.nodes if row.reason]
    stint = (log_stints.previous if previous else log_stints.current)(stints, rank)
    answer = {"job": job, "rank": rank, "reason": neutral("; ".join(silent)), "text": None}
    if stint is None:
        return answer
    return answer | await _end(front, str(job), files, stint, bytes_max)


async def _end(
    front: ServerContext, job: str, files: dict[str, LogFile], stint: LogStint, bytes_max: int
) -> dict[str, Any]:
    """Return the newest bytes of what was chosen, as text, with where it is from and what is not in it."""
    file = files[stint.member]
    end = file.bytes if stint.end_bytes == NO_END else stint.end_bytes
    begin = max(stint.from_bytes, file.gone_bytes, end - bytes_max)
    lines = await _lines(front, job, stint, begin, end) if end > begin else []
    if begin > stint.from_bytes and len(lines) > 1:
        del lines[0]  # it begins in the middle
    gone = log_stints.gone(files, stint)
    return {
        "node": stint.node,
        "process": stint.member,
        "generation": stint.generation,
        "alive": file.alive,
        "text": neutral("\n".join(lines)),
        "before_bytes": max(0, begin - stint.from_bytes - gone),  # kept, and not shown
        "gone_bytes": gone,  # not kept any more
    }


async def _lines(front: ServerContext, job: str, stint: LogStint, begin: int, end: int) -> list[str]:
    request = pb.ReadLogRequest(
        job=job, node=stint.node, member=stint.member, from_bytes=begin, end_bytes=end, tail=NO_END
    )
    lines, found, left = LogLines(), list[str](), end - begin
    reading = cast("AsyncGenerator[pb.LogBlock]", Admin(front).ReadLog(request, PageContext()))
    async with contextlib.aclosing(reading) as blocks:
        async for block in blocks:
            found += lines.take(block.data[:left])
            left -= min(left, len(block.data))
            if not left:
                break
    return found + lines.end()


async def _stacks(front: ServerContext, caller: Caller, document: dict[str, Any]) -> dict[str, Any]:
    """Return where these ranks are now; of each that does not say it, the reason."""
    request = permitted(caller, "Stacks", pb.StacksRequest, document)
    if not 1 <= len(request.ranks) <= STACKS_MAX:
        raise HttpRefused(HTTPStatus.BAD_REQUEST, f"{len(request.ranks)} ranks: give 1 to {STACKS_MAX}")
    reply = await Admin(front).Stacks(request, PageContext())
    return {"job": request.job, "ranks": [_standing(row) for row in reply.ranks]}


def _standing(row: pb.RankStacks) -> dict[str, Any]:
    head = {"node": row.node, "rank": row.rank, "reason": neutral(row.reason)}
    if row.reason:
        return head
    report = row.report
    return head | {
        "step": report.step,
        "activity": neutral(report.activity),
        "since_s": report.since_s,
        "stalled": report.stalled,
        "silent_s": report.silent_s,
        "collectives": [
            {
                "group": neutral(each.group),
                "begun": each.sequence,
                "ended": each.ended,
                "operation": neutral(each.operation),
            }
            for each in report.collectives
        ],
        "stacks": neutral(report.stacks[:STACKS_CHARS_MAX]),
        "left_out": max(0, len(report.stacks) - STACKS_CHARS_MAX),
    }


def _whole(document: dict[str, Any], name: str, default: int | None, most: int) -> int:
    """Return a whole number of a request. Raises HttpRefused."""
    value = document.get(name, default)
    least = 0 if default is None else 1
    if type(value) is not int or not least <= value <= most:
        reason = f"{name} must be a whole number from {least} to {most}, not {value!r:.80}"
        raise HttpRefused(HTTPStatus.BAD_REQUEST, reason)
    return value


_READERS: dict[str, Callable[[ServerContext, Caller, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "log": _log,
    "stacks": _stacks,
}
