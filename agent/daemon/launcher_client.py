"""Talk to the node's launcher: one that this agent started, or that an earlier agent left running.

The launcher owns the ranks' processes and outlives a killed agent, so a new agent attaches to it and learns
from its hello what runs. When the launcher dies, its ranks die with it (PR_SET_PDEATHSIG); then another one
is started. With `own=False` the launcher runs in the trainer's container (`holdfast exec`) and is waited for.
The messages are in docs/protocols.md."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from holdfast import logs, removal
from holdfast.ipc.frames import Decoder, FrameError, encode
from holdfast.ipc.messages.fields import BadMessage
from holdfast.ipc.messages.launcher import (
    VERSION,
    AttachCommand,
    EndCommand,
    LauncherHello,
    MemberFailed,
    from_launcher,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host.paths import Paths
    from holdfast.ipc.frames import Message
    from holdfast.ipc.messages.launcher import LauncherCommand, LauncherMessage

_START_TIMEOUT_S = 60.0
"""Of a launcher that lives: on a crowded machine, or from a cold image, its imports take long."""
_END_TIMEOUT_S = 10.0
_REAP_S = 5.0
_OTHER_POLL_S = 0.05
"""The pause between two tries to reach the launcher of another container."""
_CHUNK_BYTES = 64 << 10
log = logging.getLogger("holdfast.agent.launcher")


class LauncherError(RuntimeError):
    """There is no usable launcher. The message says why, and where its log is."""


class LauncherClient:
    """Sends commands to the launcher, receives its messages, and attaches to another one when it is gone.

    `receive` is called with every message; `drop` with the reason, for one that cannot be read."""

    def __init__(
        self,
        paths: Paths,
        orphan_timeout_s: float,
        receive: Callable[[LauncherMessage], None],
        drop: Callable[[str], None],
        *,
        own: bool = True,
        log_format: str = "text",
    ) -> None:
        self._log_format = log_format
        self._paths, self._orphan_timeout_s, self._own = paths, orphan_timeout_s, own
        self._receive, self._drop = receive, drop
        self._writer: asyncio.StreamWriter | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._queued: list[bytes] = []
        self._hello: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    async def open(self) -> None:
        """Attach to the launcher that runs, or start one, or wait for another container's.

        Returns once its hello has arrived. Raises LauncherError."""
        await self._attach()

    async def run(self, lost: Callable[[], None]) -> None:
        """Listen until `end`. When the launcher dies, call `lost`, then attach to another one. Raises
        LauncherError."""
        while True:
            assert self._task is not None
            await self._task
            self._writer = None
            if self._ending:
                return
            log.error("the launcher died, and its ranks with it: starting another one")
            lost()
            await self._attach()

    def send(self, command: LauncherCommand) -> None:
        """Send a command, with the incident that it is part of. Without a launcher it waits for the next
        one."""
        message, incident = command.encode(), logs.incident()
        data = encode({**message, "incident": incident} if incident else message)
        if self._writer is None:
            self._queued.append(data)
        else:
            self._writer.write(data)

    async def end(self) -> None:
        """Have the launcher kill its members and end. Waits for it, 10 s at most.

        One that has just been started, and is not attached to yet, gets SIGTERM. Where it must be killed, its
        socket is removed, or that of the one before it."""
        self._ending = True
        if self._writer is not None:
            self.send(EndCommand())
        elif self._child is not None:
            self._child.terminate()
        await self._close()
        if self._child is not None:
            await self._reap(self._child)
            with contextlib.suppress(removal.NotOursError):
                removal.dead_socket(self._paths.launcher)

    async def _close(self) -> None:
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await self._task
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _reap(self, child: subprocess.Popen[bytes]) -> None:
        try:
            await asyncio.to_thread(child.wait, _REAP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _attach(self) -> None:
        if not await self._connect():
            await (self._start_own() if self._own else self._await_other())
        if self._ending:
            return
        queued, self._queued = self._queued, []
        for data in queued:
            assert self._writer is not None
            self._writer.write(data)

    async def _start_own(self) -> None:
        if self._child is not None:
            await self._reap(self._child)
        self._start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not await self._connect():
            if self._ending:
                return
            self._check_child()
            if time.monotonic() > deadline:
                raise LauncherError(
                    f"the launcher did not start within {_START_TIMEOUT_S} s: see {self._log()}"
                )
            await asyncio.sleep(0.01)

    async def _await_other(self) -> None:
        log.info("waiting for the launcher of the trainer's container at %s", self._paths.launcher)
        connected = False
        while not connected:
            connected = await self._connect()
            await asyncio.sleep(0 if connected else _OTHER_POLL_S)

    async def _connect(self) -> bool:
        """Connect, and return whether a launcher answered.

        A launcher that is ending still accepts connections, because it closes its listening socket last: only
        its hello counts as an answer."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._paths.launcher))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        self._hello = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._listen(reader, writer))
        writer.write(encode(AttachCommand(VERSION).encode()))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._hello
        except TimeoutError:
            raise LauncherError(
                f"the launcher at {self._paths.launcher} sends no hello: end its process"
            ) from None
        except ConnectionError:
            return False
        self._writer = writer
        return True

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder(spelled=True)
        try:
            while data := await reader.read(_CHUNK_BYTES):
                for message in decoder.feed(data):
                    self._take(message)
        except (ConnectionError, FrameError) as error:
            log.warning("the connection to the launcher broke: %s", error)
        finally:
            writer.close()
            self._fail(ConnectionResetError())

    def _take(self, message: Message) -> None:
        greeting = message.get("op") == LauncherHello.op
        if greeting and message.get("version") != VERSION:
            self._refuse(
                f"it speaks protocol version {message.get('version')}, this agent {VERSION}: end it first"
            )
            return
        try:
            received = from_launcher(message)
        except BadMessage as error:
            self._drop(str(error))
        else:
            if isinstance(received, MemberFailed) and not received.member:
                self._refuse(received.message)
                return
            self._receive(received)
        if greeting and self._hello is not None and not self._hello.done():
            self._hello.set_result(None)

    def _refuse(self, reason: str) -> None:
        self._fail(LauncherError(f"the launcher at {self._paths.launcher}: {reason}"))

    def _fail(self, error: Exception) -> None:
        if self._hello is not None and not self._hello.done():
            self._hello.set_exception(error)

    def _log(self) -> str:
        return str(self._paths.run / "launcher.log")

    def _start(self) -> None:
        argv = [sys.executable, "-P", "-m", "holdfast.launch.launcher", "--run-dir", str(self._paths.run)]
        argv += ["--orphan-timeout-s", str(self._orphan_timeout_s), "--log-format", self._log_format]
        descriptor = os.open(self._log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def _check_child(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            raise LauncherError(f"the launcher ended with code {self._child.returncode}: see {self._log()}")
