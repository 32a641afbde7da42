"""Follows one job through a coordinator that may die and come back, until the job ends."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import FAILED, OK, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controlplane.cli.client import Admin
    from controlplane.wire import control_pb2 as pb

PAUSE_S = 0.3
ENDINGS = {"finished": OK, "failed": FAILED}


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
    """Wait for the job's end; `hear` gets each line of the journal on the way."""
    traceback = ""
    async for line in journal(admin, job, since_wall_s):
        hear(line)
        traceback = traceback_of(line) or traceback
        state = line["body"].get("state") if line["type"] == "JobChanged" else None
        if state is not None and state["phase"] in ENDINGS:
            return Ending(job, state["phase"], state["reason"], traceback)
    raise AssertionError("a journal has no end")


def traceback_of(line: dict[str, Any]) -> str:
    """The traceback that a line of the journal brings, "" when none."""
    status = line["body"].get("status")
    failure = status.get("failure") if isinstance(status, dict) else line["body"].get("failure")
    return str(failure["traceback"]) if isinstance(failure, dict) else ""


async def submitted(admin: Admin, spec: pb.JobSpec, timeout_s: float) -> pb.SubmitReply:
    """Submit, waiting for a leader for `timeout_s`. Raises UnreachableError, CliError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await admin.submit(spec)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(PAUSE_S)


async def until_phase(admin: Admin, job: str, phase: str) -> None:
    """Wait until a job is in this phase."""
    while True:
        status = await admin.status()
        if any(row.job == job and row.phase == phase for row in status.jobs):
            return
        await asyncio.sleep(PAUSE_S)


def last_words(ending: Ending) -> str:
    """What a person is told at the end of a job."""
    if ending.phase == "finished":
        return (
            f"job {ending.job} finished: {ending.reason}" if ending.reason else f"job {ending.job} finished"
        )
    told = f"job {ending.job} failed: {ending.reason.rstrip() or 'no reason was given'}"
    trace = ending.traceback.rstrip()
    return told if trace in told else f"{told}\n{trace}"
