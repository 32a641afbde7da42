"""Follow one job until it ends, through a coordinator that may die and come back."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import FAILED, OK, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from controlplane.cli.client import AdminClient
    from controlplane.core.records.model import JobSpec
    from controlplane.wire import control_pb2 as pb

PAUSE_S = 0.3
LOOK_S = 2.0
"""The pause between two questions to the leader whether the job has ended."""
JOURNAL_LAG_S = 1.0
"""How long to wait for the journal's line about an end that the leader has reported."""
TRACEBACK_TAIL = 1000
"""Characters at the end of a traceback by which a reason that was shortened is known to contain it."""
ENDINGS = {"finished": OK, "failed": FAILED, "stopped": FAILED}
"""The phases in which a job has ended, and the exit code for each."""


@dataclass(frozen=True, slots=True)
class FollowedEnd:
    """How a job ended."""

    job: str
    phase: str
    reason: str
    traceback: str = ""

    @property
    def code(self) -> int:
        """The exit code for this end."""
        return ENDINGS[self.phase]


class Since:
    """Whether a line of a journal is from a time on (wall clock, s). The lines are given in their order.

    What follows the first of them is, too, whatever its time: clocks are set back."""

    def __init__(self, wall_s: float) -> None:
        self._wall_s, self._begun = wall_s, False

    def __call__(self, line: dict[str, Any]) -> bool:
        """Take the next line."""
        self._begun = self._begun or line["wall_s"] >= self._wall_s
        return self._begun


async def journal(admin: AdminClient, job: str, since_wall_s: float) -> AsyncIterator[dict[str, Any]]:
    """The lines about a job from a time on (wall clock, s), across restarts of the coordinator, without
    end."""
    after, begun = 0, Since(since_wall_s)
    while True:
        try:
            async for line in admin.events(follow=True, after=after, job=job):
                after = line.sequence
                entry = json.loads(line.json)
                if begun(entry):
                    yield entry
        except UnreachableError:
            pass  # the coordinator is restarting; its journal keeps what it decided meanwhile
        await asyncio.sleep(PAUSE_S)


async def until_end(
    admin: AdminClient, job: str, since_wall_s: float, on_line: Callable[[dict[str, Any]], None]
) -> FollowedEnd:
    """Wait for the job's end; `on_line` receives each line of the journal on the way.

    The journal may never show the end (a standby's, one that began later, a clock that differs), so the
    leader is asked as well. The journal's answer is preferred, because it has the traceback."""
    from_journal = asyncio.create_task(_end_in_journal(admin, job, since_wall_s, on_line))
    from_leader = asyncio.create_task(_end_at_leader(admin, job))
    try:
        await asyncio.wait([from_journal, from_leader], return_when=asyncio.FIRST_COMPLETED)
        if not from_journal.done():
            await asyncio.wait(
                [from_journal], timeout=JOURNAL_LAG_S
            )  # it has the traceback, and is rarely behind
        return (from_journal if from_journal.done() else from_leader).result()
    finally:
        for task in (from_journal, from_leader):
            task.cancel()
        await asyncio.gather(from_journal, from_leader, return_exceptions=True)


async def _end_in_journal(
    admin: AdminClient, job: str, since_wall_s: float, on_line: Callable[[dict[str, Any]], None]
) -> FollowedEnd:
    tracebacks: list[str] = []
    async for line in journal(admin, job, since_wall_s):
        on_line(line)
        if found := traceback_of(line).rstrip():
            tracebacks.append(found)
        state = line["body"].get("state") if line["type"] == "JobChanged" else None
        if state is not None and state["phase"] in ENDINGS:
            return FollowedEnd(job, state["phase"], state["reason"], ended_by(state["reason"], tracebacks))
    raise AssertionError("a journal has no end")


async def _end_at_leader(admin: AdminClient, job: str) -> FollowedEnd:
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            status = await admin.status()
        except UnreachableError:
            continue  # the coordinator is restarting
        for row in status.jobs:
            if row.job == job and row.phase in ENDINGS:
                return FollowedEnd(job, row.phase, row.reason)


def is_end(line: dict[str, Any]) -> bool:
    """Whether a line of the journal is the end of a job, which `end_message` tells with its traceback."""
    return line["type"] == "JobChanged" and line["body"]["state"]["phase"] in ENDINGS


def ended_by(reason: str, tracebacks: Sequence[str]) -> str:
    """The whole traceback of which a reason has the end; the newest one if the reason has none.

    Other processes may have raised at the same moment, but only one failure ended the job."""
    for each in reversed(tracebacks):
        if reason.rstrip().endswith(each[-TRACEBACK_TAIL:]):
            return each
    return tracebacks[-1] if tracebacks and "\n" not in reason.strip() else ""


def traceback_of(line: dict[str, Any]) -> str:
    """The traceback in a line of the journal; "" without one."""
    status = line["body"].get("status")
    failure = status.get("failure") if isinstance(status, dict) else line["body"].get("failure")
    return str(failure["traceback"]) if isinstance(failure, dict) else ""


async def submitted(admin: AdminClient, spec: JobSpec, timeout_s: float) -> pb.SubmitReply:
    """Submit, and wait up to `timeout_s` for a leader. Raises UnreachableError, CliError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await admin.submit(spec)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(PAUSE_S)


async def status_by(admin: AdminClient, ends: float) -> pb.StatusReply:
    """The state of the cluster; waits for a leader until `ends` (s, monotonic).

    A command that waits must outlast a change of leaders. Raises UnreachableError after `ends`, CliError at
    once."""
    while True:
        try:
            return await admin.status()
        except UnreachableError:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(PAUSE_S)


async def until_phase(admin: AdminClient, job: str, phase: str) -> None:
    """Wait until a job is in this phase."""
    while True:
        status = await status_by(admin, math.inf)
        if any(row.job == job and row.phase == phase for row in status.jobs):
            return
        await asyncio.sleep(PAUSE_S)


def end_message(ending: FollowedEnd) -> str:
    """The message about the end of a job, for people."""
    if ending.phase == "finished":
        return (
            f"job {ending.job} finished: {ending.reason}" if ending.reason else f"job {ending.job} finished"
        )
    text = f"job {ending.job} {ending.phase}: {ending.reason.rstrip() or 'no reason was given'}"
    trace = ending.traceback.rstrip()
    return text if trace in text else f"{text}\n{trace}"
