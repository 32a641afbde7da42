"""Collect stack reports of the node's ranks, when the leader or the core asks for them.

A report has the stacks, the last collectives and the progress page of a rank. Two parties answer for each
rank: the launcher signals the process, which may be in another container, and the process writes its stacks
to a file beside its progress page; the SDK's thread in the rank reports its process groups, if the
interpreter's lock lets it run. So a rank that hangs in native code still gives its Python stacks, or at least
what the kernel shows of its threads."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.deciding.silence import silence_s
from controlplane.background_tasks import BackgroundTasks
from controlplane.core.records import events
from controlplane.core.records.model import Collective, MemberPhase, Standing
from holdfast.ipc.messages import agent as agent_msg
from holdfast.ipc.messages.launcher import StacksCommand
from holdfast.ipc.progress_page import ACTIVITIES, PHASES
from holdfast.ipc.traces import CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from controlplane.core.records.diagnosis import NodeResources
    from controlplane.core.records.effects import CollectStacks
    from holdfast.ipc.messages import rank as rank_msg
    from holdfast.ipc.messages.launcher import LauncherCommand, NativeStacks

ANSWER_S = 0.8
"""How long ranks and launcher may take to answer; the leader waits a little longer."""

RECORD_BYTES_MAX = 64 * 1024
"""Limit for the flight record of one rank; 256 operations take about 8 KiB."""

PROCESS_CHARS_MAX = 400
"""Limit for the words about one process."""

_POLL_S = 0.02
_STILL_S = 0.06
"""A stacks file that has not grown for this long is complete."""
_FRAMES_MAX = 12
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
_INNER = re.compile(r"/torch/|/threading\.py$|/multiprocessing/")
log = logging.getLogger("holdfast.agent")


@dataclass(slots=True)
class _Asked:
    """What one member and the launcher have answered so far. None: not answered yet."""

    round: int
    record_bytes_max: int = 0
    groups: tuple[Collective, ...] | None = None
    native: str | None = None
    threads: str = ""  # stacks of the threads besides the main one
    record: str = ""  # what was called in its groups, as the SDK packs it
    no_stacks: str = ""  # why the process writes none; "" when it does
    process: str = ""  # how the kernel lists it


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of one member: its stacks in `room` characters at most (0: not at all), and what it has
    called in `generation`, in so many bytes at most."""

    generation: int
    room: int
    record_bytes_max: int


@dataclass(slots=True)
class _Dump:
    """The stacks that a member wrote: as text, and the main thread's frames."""

    text: str = ""
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Channels:
    """The ways to ask for a member's stacks, and to send the leader the reports."""

    path: Callable[[str], Path]  # the file where a member writes its stacks
    push: Callable[[str, agent_msg.AgentMessage], object]  # sends a message to a member
    command: Callable[[LauncherCommand], None]  # sends a command to the launcher
    send_event: Callable[[events.Event], None]  # sends an event to the leader
    resources: Callable[[], NodeResources | None] = lambda: None  # what the node has left now


class Stacks:
    """Collects stack reports. Each request has a round number, so that a late answer is not taken for a new
    one."""

    def __init__(self, members: NodeState, to: Channels, beat_interval_s: float) -> None:
        self._members, self._to, self._beat_interval_s = members, to, beat_interval_s
        self._asked: dict[str, _Asked] = {}
        self._tasks = BackgroundTasks()
        self._rounds = 0

    def order(self, order: CollectStacks) -> None:
        """Collect the reports of a generation's ranks; answered by StacksCollected."""
        self._tasks.begin(self._collect(order))

    async def close(self) -> None:
        """Cancel every collection."""
        await self._tasks.close()

    def take_native(self, answer: NativeStacks) -> None:
        """Take the launcher's answer: it has signalled a member, and sends what the kernel shows of its
        threads."""
        asked = self._asked.get(answer.member)
        if asked is not None:
            asked.native = answer.native[:CHARS_MAX]
            asked.no_stacks = answer.reason[:200]
            asked.process = answer.process[:PROCESS_CHARS_MAX]

    def take_groups(self, member: LocalMember, answer: rank_msg.GroupProgress) -> None:
        """Take a member's answer: how many collectives of each process group it has entered and ended."""
        asked = self._asked.get(member.name)
        if asked is not None and answer.round == asked.round:
            asked.groups = tuple(
                Collective(group.group, group.sequence, group.ended, group.operation, group.bytes)
                for group in answer.groups
            )
            asked.threads = answer.threads[:CHARS_MAX]
            asked.record = answer.record if len(answer.record) <= asked.record_bytes_max else ""

    async def _collect(self, order: CollectStacks) -> None:
        members = [member for member in self._members.of(order.job) if _is_asked(member, order)]
        share = max(len(members), 1)
        ask = _Question(
            order.generation,
            0 if order.records_only else order.bytes_max // share,
            min(RECORD_BYTES_MAX, order.bytes_max // share),
        )
        ranks = await asyncio.gather(*(self._report_anyhow(member, ask) for member in members))
        facts = self._members.facts
        reports = events.StacksCollected(
            facts.node, facts.incarnation, order.job, order.generation, order.round, tuple(ranks)
        )
        left = None if order.records_only else await asyncio.to_thread(self._to.resources)
        self._to.send_event(dataclasses.replace(reports, resources=left))

    def report_silent(self, member: LocalMember, then: Callable[[Standing], None]) -> None:
        """Take the stacks of a member that has stopped beating, then call `then` with its report."""
        self._tasks.begin(self._report_silent(member, then))

    async def _report_silent(self, member: LocalMember, then: Callable[[Standing], None]) -> None:
        then(await self._report_anyhow(member, _Question(0, CHARS_MAX, 0), sdk_answers=False))

    async def _report_anyhow(
        self, member: LocalMember, ask: _Question, *, sdk_answers: bool = True
    ) -> Standing:
        """Report on one member, in any case.

        When its stacks cannot be taken the report says why: the reports of the other ranks, and this member's
        silence, count all the same."""
        try:
            if ask.room:
                return await self._report(member, ask, sdk_answers=sdk_answers)
            return await self._record_alone(member, ask)
        except OSError as error:
            self._asked.pop(member.name, None)
            nothing = _Dump(f"its stacks cannot be read: {error}"[: ask.room])
            return _stack_report(member, self._members.step(member), (), nothing, 0.0)

    async def _report(self, member: LocalMember, ask: _Question, *, sdk_answers: bool) -> Standing:
        """Report on one member. `sdk_answers`: its SDK may still answer. Raises OSError."""
        asked = self._ask(member, ask)
        if not sdk_answers:
            asked.groups = ()
        path = self._to.path(member.name)
        if path.exists():
            path.write_bytes(b"")  # truncated, not replaced: the process has it open for appending
        self._to.command(StacksCommand(member.name))
        spied = asyncio.ensure_future(_spy(member.status.pid))
        dump = await self._dump(member, asked)
        spy = await spied
        if self._asked.get(member.name) is asked:
            del self._asked[member.name]
        main = dump.text or asked.no_stacks or "no Python stacks were received in time"
        parts = [main, asked.threads, asked.native or "", spy]
        text = "\n".join(part for part in parts if part)
        step = self._members.step(member)
        quiet_s = silence_s(member, time.monotonic(), self._beat_interval_s)
        silent_s = quiet_s if asked.groups is None else 0.0
        found = _Dump(text[: ask.room], dump.frames)
        report = _stack_report(member, step, asked.groups or (), found, silent_s)
        return dataclasses.replace(report, flight_record=asked.record, process=asked.process)

    def _ask(self, member: LocalMember, ask: _Question) -> _Asked:
        """Ask the SDK in the member; `take_groups` takes its answer."""
        self._rounds += 1
        asked = self._asked[member.name] = _Asked(self._rounds, ask.record_bytes_max)
        self._to.push(member.name, agent_msg.ReportGroups(asked.round, ask.generation, ask.record_bytes_max))
        return asked

    async def _record_alone(self, member: LocalMember, ask: _Question) -> Standing:
        """Report what the member has called, without its stacks: it has left the generation, or will."""
        asked = self._ask(member, ask)
        polls = round(ANSWER_S / _POLL_S)
        for _ in range(polls):
            if asked.groups is not None:
                break
            await asyncio.sleep(_POLL_S)
        if self._asked.get(member.name) is asked:
            del self._asked[member.name]
        report = _stack_report(member, self._members.step(member), (), _Dump(), 0.0)
        return dataclasses.replace(report, flight_record=asked.record)

    async def _dump(self, member: LocalMember, asked: _Asked) -> _Dump:
        """Wait until the member has written its stacks, ANSWER_S at most, and return what there is."""
        path = self._to.path(member.name)
        deadline = time.monotonic() + ANSWER_S
        size, since = 0, time.monotonic()
        while (now := time.monotonic()) < deadline:
            known = path.stat().st_size if path.exists() else 0
            if known != size:
                size, since = known, now
            written = bool(asked.no_stacks) or (size > 0 and now - since >= _STILL_S)
            if written and asked.native is not None and asked.groups is not None:
                break
            await asyncio.sleep(_POLL_S)
        text = path.read_text(errors="replace")[:CHARS_MAX] if path.exists() else ""
        return _Dump(text, frames_of(text))


def _is_asked(member: LocalMember, order: CollectStacks) -> bool:
    """Whether an order is about this member: a rank that trains in the generation, or, where only records are
    wanted or a barrier is late, any that has a process."""
    status = member.status
    if order.records_only or order.at_barrier:
        return status.rank >= 0 and status.pid > 0
    return status.phase is MemberPhase.RUNNING and status.generation == order.generation


def frames_of(dump: str) -> tuple[str, ...]:
    """The main thread's frames in a faulthandler dump, innermost first, as `name (file:line)`.

    Where the script has frames of its own, those of the libraries around them are left out, except the
    innermost."""
    main = dump.rsplit("hread 0x", 1)[-1]
    found = [
        (match["file"], f"{match['name']} ({match['file'].rpartition('/')[2]}:{match['line']})")
        for match in _FRAME.finditer(main)
    ]
    own = [words for file, words in found if not _INNER.search(file)]
    innermost = [found[0][1]] if found and own and found[0][1] != own[0] else []
    return tuple([*innermost, *own][:_FRAMES_MAX]) or tuple(words for _, words in found[:_FRAMES_MAX])


def _stack_report(
    member: LocalMember, step: int, groups: tuple[Collective, ...], dump: _Dump, silent_s: float
) -> Standing:
    page, status = member.page, member.status
    activity, since_s = status.activity, status.stalled_s
    if page is not None and 0 <= page.activity < len(ACTIVITIES):
        activity = ACTIVITIES[page.activity]
        since_s = max(0.0, time.monotonic() - page.marked_ns / 1e9)
        if activity in ("first", "step") and 0 <= page.phase < len(PHASES):
            activity = PHASES[page.phase]
    stalled = 0 < status.stalled_s <= since_s  # otherwise the rank has made a mark since it was found stalled
    return Standing(
        member.name, status.rank, step, activity, since_s, stalled, groups, dump.frames, dump.text, silent_s
    )


async def _spy(pid: int) -> str:
    """Native frames by py-spy, beside Python's; "" where py-spy is not installed or not permitted."""
    tool = shutil.which("py-spy")
    if tool is None or pid <= 0:
        return ""
    try:
        process = await asyncio.create_subprocess_exec(
            tool, "dump", "--native", "--nonblocking", "--pid", str(pid),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return f"{tool} cannot be run: {error}"
    try:
        async with asyncio.timeout(ANSWER_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"py-spy did not finish within {ANSWER_S:g} s"
    return out.decode(errors="replace")[:CHARS_MAX] if process.returncode == 0 else ""
