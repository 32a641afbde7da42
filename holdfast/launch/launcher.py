"""Start, signal and reap the processes of one node, as its agent orders.

It outlives a killed agent, and a new agent adopts what runs; its members do not outlive it. It runs in the
trainer's container, so it imports only what `holdfast.launch` may."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import logs, removal
from holdfast.ipc import traces
from holdfast.ipc.frames import Decoder, FrameError, Message, encode
from holdfast.ipc.messages import launcher as msg
from holdfast.ipc.messages.fields import BadMessage, Record, by_op, decode
from holdfast.launch import leftovers, linux
from holdfast.launch import run_dir as folder
from holdfast.launch.errand import ORPHANED, EndPolicy
from holdfast.launch.processes import MemberProcess
from holdfast.launch.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CHUNK_BYTES = 64 << 10
_STRAYS_MAX = 1000
_OVER_TIMEOUT_S = 30.0
_CARETAKERS_S = 2.0
"""In the last seconds of the launcher's wait for its children, caretakers of semaphores are killed too."""
_MEMBER_REPORTS = by_op((msg.MemberWarm, msg.MemberRunning, msg.MemberFailed))
"""What the launcher passes on from a member to the agent."""
_STRAY_NS = 10_000_000_000
"""An older exit of an unknown process does not belong to a member about to be announced: pids are reused."""
log = logging.getLogger("holdfast.launcher")


class Launcher:
    """The processes of one node, and the one agent that controls them."""

    def __init__(self, run_dir: Path, orphan_timeout_s: float, end_policy: EndPolicy | None = None) -> None:
        self._run_dir, self._orphan_timeout_s = run_dir, orphan_timeout_s
        self.end_policy = end_policy or EndPolicy()
        self.id = f"{uuid.uuid4().hex[:12]}-{os.getpid()}"
        self._processes: dict[str, MemberProcess] = {}
        self._by_pid: dict[int, MemberProcess] = {}
        self._strays: dict[int, tuple[int | None, int | None, int]] = {}
        self._past: set[str] = set()  # members that have ended, and may have left processes
        self._zygote = Zygote(self._on_zygote)
        self._agent: asyncio.StreamWriter | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._orphaned: asyncio.TimerHandle | None = None
        self._done = asyncio.Event()
        self._handlers: dict[type[Record], Callable[[Any], Awaitable[None]]] = {
            msg.AttachCommand: self._attach,
            msg.SpawnCommand: self._spawn,
            msg.RunCommand: self._run,
            msg.SignalCommand: self._signal,
            msg.StacksCommand: self._stacks,
            msg.ForgetCommand: self._forget,
            msg.JobOverCommand: self._over,
            msg.EndCommand: self._end,
        }

    async def serve(self) -> None:
        """Serve until ordered to end, or without an agent for too long; then kill every member."""
        loop = asyncio.get_running_loop()
        linux.become_subreaper()
        leftovers.disown()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        path = self._run_dir / folder.SOCKET_NAME
        removal.dead_socket(path)
        server = await asyncio.start_unix_server(self._on_connection, sock=folder.listener(path))
        made = path.lstat()
        self._zygote.start()
        self._start_orphan_clock()
        log.info("launcher %s listens at %s", self.id, path)
        await self._done.wait()
        removal.made(path, made)
        server.close()
        await self._kill_all()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            await self._converse(reader, writer)
        except (FrameError, ConnectionError, PermissionError) as error:
            log.warning("a connection is closed: %s", error)
        finally:
            del self._connections[task]
            if self._agent is writer:
                self._agent = None
                self._start_orphan_clock()
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder.check_peer(writer.get_extra_info("socket"))
        decoder = Decoder()
        while data := await reader.read(_CHUNK_BYTES):
            for message in decoder.feed(data):
                if message.get("op") == "attach":
                    _check_version(message, writer)
                    self._adopt(writer)
                if self._agent is not writer:
                    raise FrameError(
                        "an agent must attach before it sends anything, and a newer agent replaces it"
                    )
                await self._handle(message)

    def _adopt(self, writer: asyncio.StreamWriter) -> None:
        if self._agent is not None and self._agent is not writer:
            self._agent.close()
        self._agent = writer
        if self._orphaned is not None:
            self._orphaned.cancel()

    async def _handle(self, message: Message) -> None:
        op = str(message.get("op"))
        if op not in msg.COMMANDS:
            log.warning("an unknown message is dropped: op %.80r", message.get("op"))
            return
        try:
            with logs.bound(message.get("incident")):
                command = msg.launcher_command(message)
                await self._handlers[type(command)](command)
        except (ValueError, TypeError, KeyError, OSError) as error:
            log.warning("op %s failed: %r", op, error)
            self._send(msg.MemberFailed(str(message.get("member", "")), _reason(error)))

    def _send(self, message: msg.LauncherMessage) -> None:
        if self._agent is not None:
            self._agent.write(encode(message.encode()))

    async def _attach(self, _command: msg.AttachCommand) -> None:
        for process in self._processes.values():
            if process.end is not None:
                self._send(process.end)
        members = tuple(process.entry() for process in self._processes.values() if process.end is None)
        self._send(msg.LauncherHello(msg.VERSION, self.id, members))

    async def _spawn(self, command: msg.SpawnCommand) -> None:
        member = command.member
        known = self._processes.get(member)
        if known is not None:
            self._send_state(known)
            return
        log.info("%s is spawned", member)
        process = MemberProcess(member, self._on_member)
        request = await process.open(command.log)
        self._processes[member] = process
        self._zygote.fork(request)

    def _send_state(self, process: MemberProcess) -> None:
        """Answer a repeated SpawnCommand. A process that is not forked yet is reported once it is warm."""
        if process.end is not None:
            self._send(process.end)
        elif process.state == "running":
            self._send(msg.MemberRunning(process.member, process.pid))
        elif process.state == "warm":
            self._send(msg.MemberWarm(process.member, process.pid))

    async def _run(self, command: msg.RunCommand) -> None:
        process = self._processes[command.member]
        if command.inherit is not None:  # the agent's own variables are not for ranks of another container
            env = {**command.inherit, **os.environ, **command.env}
            command = dataclasses.replace(command, env=env)
        process.run(command)
        if process.end is not None or process.state == "running":
            self._send_state(process)

    async def _signal(self, command: msg.SignalCommand) -> None:
        process = self._processes[command.member]
        number = signal.Signals(command.signal)
        log.info("%s gets %s", process.member, number.name)
        if not process.signal(number) and process.pid == 0 and number == signal.SIGKILL:
            self._zygote.forget(process.member)  # not forked yet: if it is later, its closed socket ends it
            self._send(process.ended(None, signal.SIGKILL, time.monotonic_ns()))

    async def _stacks(self, command: msg.StacksCommand) -> None:
        """Make a member write its Python stacks, and report what the kernel shows of it."""
        process = self._processes[command.member]
        if process.pid == 0 or process.end is not None:
            return
        state = traces.process_state(process.pid)  # before it is asked: answering would wake it
        reason = traces.ask(process.pid)
        native = traces.native(process.pid)[: traces.CHARS_MAX]
        self._send(msg.NativeStacks(process.member, reason, native, state))

    async def _forget(self, command: msg.ForgetCommand) -> None:
        process = self._processes.get(command.member)
        if process is not None and process.end is not None:
            del self._processes[process.member]
            await process.closed()

    async def _over(self, command: msg.JobOverCommand) -> None:
        if self.end_policy.note_over(command.job, command.ok):
            log.info("job %s is over: %s", command.job, command.reason)
            asyncio.get_running_loop().call_later(_OVER_TIMEOUT_S, self._done.set)
            self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self.end_policy.over and all(process.end is not None for process in self._processes.values()):
            self._done.set()

    async def _end(self, _command: msg.EndCommand) -> None:
        self._done.set()

    def _terminate(self) -> None:
        """On SIGTERM or SIGINT: end at once, or when the agent has left in order."""
        if self.end_policy.ask_agent(self._agent is not None):
            self._send(msg.LauncherStopping())
            asyncio.get_running_loop().call_later(self.end_policy.grace_s, self._done.set)
        else:
            self._done.set()

    def _on_zygote(self, message: Message) -> None:
        for note in message.get("notes", []):
            log.warning("%s", note)
            self._send(msg.LauncherNote(note))
        process = self._processes.get(message.get("member", ""))
        if process is None:
            return
        if message["op"] == "forked":
            self._forked(process, message["pid"])
        else:
            del self._processes[process.member]
            process.close()
            self._send(msg.MemberFailed.decode(message))

    def _on_member(self, process: MemberProcess, message: Message) -> None:
        if message.get("op") in ("imported", "late"):
            self._zygote.take_report(message)
            return
        try:
            report = decode({**message, "member": process.member}, _MEMBER_REPORTS)
        except BadMessage as error:
            log.warning("a message of %s is dropped: %s", process.member, error)
            return
        if isinstance(report, msg.MemberWarm):
            self._zygote.forget(process.member)
            self._forked(process, report.pid)
        if isinstance(report, msg.MemberRunning) and report.fresh_for:
            log.info("%s needs a fresh interpreter for %s", process.member, ", ".join(report.fresh_for))
        self._send(report)

    def _forked(self, process: MemberProcess, pid: int) -> None:
        if process.end is not None and process.pid == pid:  # reported twice, and ended in between
            return
        process.pid = pid
        self._by_pid[pid] = process
        stray = self._strays.pop(pid, None)
        if stray is not None and time.monotonic_ns() - stray[2] < _STRAY_NS:
            self._exited(pid, *stray)
        elif process.end is not None:
            linux.signal_group(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap every child that has ended: members, the zygote, orphans of members."""
        while (ended := linux.next_ended()) is not None:
            pid, at_ns = ended.si_pid, time.monotonic_ns()
            if pid in self._by_pid:
                linux.kill_session(pid)  # before its pid can be reused
            os.waitpid(pid, 0)
            exited = ended.si_code == os.CLD_EXITED
            self._exited(pid, ended.si_status if exited else None, None if exited else ended.si_status, at_ns)
        self._end_leftovers()

    def _end_leftovers(self) -> None:
        """End what members have left in sessions of their own: it would keep ports and devices."""
        for left in leftovers.end(self._past.__contains__, {*self._by_pid, self._zygote.pid}):
            text = (
                f"{left.member} has ended and left `{left.command}` (process {left.pid}) behind: it is killed"
            )
            log.warning("%s", text)
            self._send(msg.LauncherNote(text))

    def _exited(self, pid: int, code: int | None, number: int | None, at_ns: int) -> None:
        process = self._by_pid.pop(pid, None)
        if process is not None:
            self._past.add(process.member)
        if process is not None and process.end is None:
            self._send(process.ended(code, number, at_ns))
            self._end_when_idle()
        elif pid == self._zygote.pid:
            log.warning("the zygote ended (code %s, signal %s)", code, number)
            if not self._done.is_set():
                self._zygote.ended()
        elif process is None:
            self._strays[pid] = (code, number, at_ns)
            while len(self._strays) > _STRAYS_MAX:
                del self._strays[next(iter(self._strays))]

    def _start_orphan_clock(self) -> None:
        loop = asyncio.get_running_loop()
        if self._orphaned is not None:
            self._orphaned.cancel()
        self._orphaned = loop.call_later(self._orphan_timeout_s, self._orphan)

    def _orphan(self) -> None:
        log.warning("no agent for %s s: all members are ended", self._orphan_timeout_s)
        self.end_policy.code = self.end_policy.code or ORPHANED
        self._done.set()

    async def _kill_all(self) -> None:
        if self._orphaned is not None:
            self._orphaned.cancel()
        zygote = self._zygote.pid
        self._zygote.close()
        if zygote:
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
        deadline = time.monotonic() + 5.0
        while linux.children() and time.monotonic() < deadline:
            self._reap()
            late = time.monotonic() > deadline - _CARETAKERS_S
            for pid in linux.children():  # orphans of members, in sessions of their own
                if linux.is_caretaker(pid) and not late:
                    continue
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.002)
        for process in self._processes.values():
            await process.closed()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections, return_exceptions=True)


def _reason(error: BaseException) -> str:
    return f"no such member: {error}" if isinstance(error, KeyError) else str(error)


def _check_version(message: Message, writer: asyncio.StreamWriter) -> None:
    """Raise FrameError, and tell the peer, if its version is another: it must not replace the agent."""
    if message.get("version") != msg.VERSION:
        theirs = f"{message.get('version')!r:.80}"
        reason = f"this launcher speaks version {msg.VERSION}, the agent {theirs}: install the same Holdfast"
        writer.write(encode(msg.MemberFailed("", reason).encode()))
        raise FrameError(reason)


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="holdfast.launch.launcher", description=__doc__)
    parser.add_argument(
        "--run-dir", type=Path, required=True, help="folder for launcher.sock and launcher.pid"
    )
    parser.add_argument(
        "--orphan-timeout-s", type=float, default=60.0, help="how long to outlive an agent, s"
    )
    parser.add_argument("--log-format", default="text", choices=("text", "json"), help="of our log lines")
    arguments = parser.parse_args()
    serve(arguments.run_dir, arguments.orphan_timeout_s, EndPolicy(), arguments.log_format)


def serve(run_dir: Path, orphan_timeout_s: float, end_policy: EndPolicy, log_format: str = "text") -> int:
    """Serve in this folder to the end. Returns the exit code; exits with the fix if it cannot."""
    logs.set_up(log_format, process="launcher")
    lock = folder.prepare(run_dir)

    async def run() -> None:
        await Launcher(run_dir, orphan_timeout_s, end_policy).serve()

    try:
        asyncio.run(run())
    finally:
        removal.opened(run_dir / folder.PID_NAME, lock)
        os.close(lock)
    return end_policy.code


if __name__ == "__main__":
    main()
