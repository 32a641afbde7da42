"""Follow one process per member: from the order to start it, through interpreter and script, to its end."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from holdfast.ipc.frames import Decoder, FrameError, encode
from holdfast.ipc.messages.launcher import MemberExited, ProcessEntry
from holdfast.launch import linux
from holdfast.launch.zygote import ForkRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.frames import Message
    from holdfast.ipc.messages.launcher import RunCommand

_CHUNK_BYTES = 64 << 10


class MemberProcess:
    """A member's process as the launcher sees it.

    - `state`: "spawning", "warm", "running" or "exited".
    - `pid`: 0 until it was forked.
    - `end`: the message that reports its exit; None while it lives.

    `receive` is called with every message from the process."""

    def __init__(self, member: str, receive: Callable[[MemberProcess, Message], None]) -> None:
        self.member = member
        self.state = "spawning"
        self.pid = 0
        self.end: MemberExited | None = None
        self._receive = receive
        self._order: RunCommand | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, log: str) -> ForkRequest:
        """Open its log and its control socket. Returns what the zygote needs to fork it.

        Raises OSError when the log cannot be opened."""
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        ours, theirs = socket.socketpair()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._task = asyncio.create_task(self._listen(reader))
        return ForkRequest(self.member, theirs, descriptor)

    def run(self, order: RunCommand) -> None:
        """Make it become a script, now or once it is warm; a second order does nothing.

        Raises FrameError when the order is too large."""
        if self._order is not None:
            return
        encode(order.encode())
        self._order = order
        if self.state == "warm":
            self._send_order()

    def entry(self) -> ProcessEntry:
        """What a newly attached agent learns of it."""
        state = "running" if self._order is not None and self.state == "warm" else self.state
        return ProcessEntry(self.member, self.pid, state)

    def ended(self, code: int | None, number: int | None, at_ns: int) -> MemberExited:
        """Record that the process has ended. Returns the message that reports it."""
        self.state = "exited"
        self.end = MemberExited(self.member, self.pid, code, number, at_ns)
        self.close()
        return self.end

    def signal(self, number: int) -> bool:
        """Signal its process group. False if there is none."""
        return self.pid != 0 and self.end is None and linux.signal_group(self.pid, number)

    def close(self) -> None:
        """Close our end of its control socket: an interpreter that still waits ends then."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def closed(self) -> None:
        """Wait until nothing of it is open here."""
        self.close()
        if self._task is not None:
            await self._task

    def _send_order(self) -> None:
        if self._writer is not None and self._order is not None:
            self._writer.write(encode(self._order.encode()))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        decoder = Decoder()
        try:
            while data := await reader.read(_CHUNK_BYTES):
                for message in decoder.feed(data):
                    self._handle(message)
        except (ConnectionError, FrameError):
            return  # its exit will be noticed

    def _handle(self, message: Message) -> None:
        if self.end is not None:
            return
        if message.get("op") == "warm":
            self.state, self.pid = "warm", message["pid"]
            self._send_order()
        elif message.get("op") == "running":
            self.state = "running"
        self._receive(self, message)
