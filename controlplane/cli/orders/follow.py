"""Follows one job through a coordinator that may die and come back, until the job ends."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import FAILED, OK, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controlplane.cli.client import Admin
    from controlplane.core.records.model import JobSpec
    from controlplane.wire import control_pb2 as pb

PAUSE_S = 0.3
LOOK_S = 2.0
"""How often the leader is asked whether the job is over."""
JOURNAL_LAG_S = 1.0
ENDINGS = {"finished": OK, "failed": FAILED, "stopped": FAILED}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended."""

    job: str
    phase: str
    reason: str
    traceback: str = ""

    @property
    def code(self) -> int:
        """The exit code that says so."""
        return ENDINGS[self.phase]


async def journal(admin: Admin, job: str, since_wall_s: float) -> AsyncIterator[dict[str, Any]]:
    """The job's lines from a time on, across restarts of the coordinator; never ends by itself."""
    after = 0
    while True:
        try:
            async for line in admin.events(follow=True, after=after, job=job):
                after = line.sequence
                entry = json.loads(line.json)
                if entry["wall_s"] >= since_wall_s:
                    yield entry
        except UnreachableError:
            pass  # it is being restarted; what it decided meanwhile is in its journal
        await asyncio.sleep(PAUSE_S)


async def until_end(
    admin: Admin, job: str, since_wall_s: float, hear: Callable[[dict[str, Any]], None]
) -> Ending:
    """Wait for the job's end; `hear` gets each line of the journal on the way.

    The journal may not tell of it (a standby's, one begun later, a clock that differs): the leader is
    asked as well."""
    told = asyncio.create_task(_told(admin, job, since_wall_s, hear))
    seen = asyncio.create_task(_seen(admin, job))
    try:
        await asyncio.wait([told, seen], return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            await asyncio.wait([told], timeout=JOURNAL_LAG_S)  # it says more, and is hardly ever behind
        return (told if told.done() else seen).result()
    finally:
        for task in (told, seen):
            task.cancel()
        await asyncio.gather(told, seen, return_exceptions=True)


async def _told(
    admin: Admin, job: str, since_wall_s: float, hear: Callable[[dict[str, Any]], None]
) -> Ending:
    traceback = ""
    async for line in journal(admin, job, since_wall_s):
        hear(line)
        traceback = traceback_of(line) or traceback
        state = line["body"].get("state") if line["type"] == "JobChanged" else None
        if state is not None and state["phase"] in ENDINGS:
            return Ending(job, state["phase"], state["reason"], traceback)
    raise AssertionError("a journal has no end")


async def _seen(admin: Admin, job: str) -> Ending:
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            status = await admin.status()
        except UnreachableError:
            continue  # it is being restarted
        for row in status.jobs:
            if row.job == job and row.phase in ENDINGS:
                return Ending(job, row.phase, row.reason)


def traceback_of(line: dict[str, Any]) -> str:
    """The traceback that a line of the journal brings, "" when none."""
    status = line["body"].get("status")
    failure = status.get("failure") if isinstance(status, dict) else line["body"].get("failure")
    return str(failure["traceback"]) if isinstance(failure, dict) else ""


async def submitted(admin: Admin, spec: JobSpec, timeout_s: float) -> pb.SubmitReply:
    """Submit, waiting for a leader for `timeout_s`. Raises UnreachableError, CliError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await admin.submit(spec)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(PAUSE_S)


async def status_by(admin: Admin, ends: float) -> pb.StatusReply:
    """What the leader sees; while there is none it is waited for, until `ends` (s, monotonic): whoever waits
    for something must outlast a change of leaders. Raises UnreachableError then, CliError at once."""
    while True:
        try:
            return await admin.status()
        except UnreachableError:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(PAUSE_S)


async def until_phase(admin: Admin, job: str, phase: str) -> None:
    """Wait until a job is in this phase."""
    while True:
        status = await status_by(admin, math.inf)
        if any(row.job == job and row.phase == phase for row in status.jobs):
            return
        await asyncio.sleep(PAUSE_S)


def last_words(ending: Ending) -> str:
    """What a person is told at the end of a job."""
    if ending.phase == "finished":
        return (
            f"job {ending.job} finished: {ending.reason}" if ending.reason else f"job {ending.job} finished"
        )
    told = f"job {ending.job} {ending.phase}: {ending.reason.rstrip() or 'no reason was given'}"
    trace = ending.traceback.rstrip()
    return told if trace in told else f"{told}\n{trace}"
