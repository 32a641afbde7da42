"""Serve the Unix socket where a node's ranks talk to their agent.

The kernel names the process that connects (SO_PEERCRED), and the launcher the member that it is. A rank
can be faster than the launcher's message about it: its first frame then waits (`_early`). A frame that cannot
be read ends its own connection only."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from typing import TYPE_CHECKING, Protocol, cast

from holdfast import removal
from holdfast.ipc.frames import FORM_BYTES_MAX, Decoder, FrameError, Message, encode
from holdfast.ipc.messages.agent import Noted, Refused
from holdfast.ipc.messages.fields import BadMessage
from holdfast.ipc.messages.rank import VERSION, Hello, Raised

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.messages.agent import AgentMessage

_BACKLOG = 128
_FIRST = (Hello.op, Raised.op)
log = logging.getLogger("holdfast.agent.gate")


class RankHandler(Protocol):
    """What the rank server needs of its node."""

    def admit(self, member: str, pid: int) -> str:
        """Why this process is refused as that member; "" when it is admitted."""

    def unnamed(self, member: str) -> bool:
        """Whether the launcher has yet to report this member's process."""

    def receive(self, member: str, frame: Message) -> None:
        """Take a message of an admitted member. Raises BadMessage."""

    def joined(self, member: str, frame: Message) -> list[AgentMessage]:
        """Take an admitted member's hello; returns the answers to it. Raises BadMessage."""

    def left(self, member: str) -> None:
        """Note that a member's connection ended."""

    def drop(self, kind: str, reason: str) -> None:
        """Count and log something that was dropped."""


class RankServer:
    """The listening socket and its connections."""

    def __init__(self, path: Path, node: RankHandler) -> None:
        self._path, self._node = path, node
        self._ranks: dict[str, _Connection] = {}
        self._open: set[_Connection] = set()
        self._early: dict[_Connection, Message] = {}  # first frames of processes that are not reported yet
        self._server: asyncio.Server | None = None
        self._made: os.stat_result | None = None  # identity of our socket file, so that only that is removed

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def gone(self) -> bool:
        """Whether its socket file was removed, so that nobody can connect any more."""
        return self._server is not None and not self._path.exists()

    async def reopen(self) -> None:
        """Listen at a new socket file. Existing connections stay. Raises OSError."""
        if self._server is not None:
            self._server.close()
        await self.open()

    async def open(self) -> None:
        """Listen, with mode 0600. Raises OSError."""
        removal.dead_socket(self._path)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        self._made = self._path.lstat()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self), sock=listener, backlog=_BACKLOG
        )

    async def close(self) -> None:
        """End every connection and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._open):
            connection.abort()
        if self._made is not None:
            removal.made(self._path, self._made)
        await asyncio.sleep(0)  # lets the aborted transports close their sockets

    def push(self, member: str, message: AgentMessage) -> bool:
        """Send a message to a member at once. False when it is not connected."""
        connection = self._ranks.get(member)
        if connection is None:
            return False
        connection.send(message)
        return True

    def connected(self, member: str) -> bool:
        """Whether this member has a connection now."""
        return member in self._ranks

    def opened(self, connection: _Connection) -> None:
        """Note a new connection. Its first frame will name the member."""
        self._open.add(connection)

    def closed(self, connection: _Connection) -> None:
        """Note that a connection is gone."""
        self._open.discard(connection)
        if self._early.get(connection, {}).get("op") == Hello.op:
            del self._early[connection]  # a hello needs its connection; a `raised` counts without
        member = connection.member
        if member and self._ranks.get(member) is connection:
            del self._ranks[member]
            self._node.left(member)

    def receive(self, connection: _Connection, message: Message) -> None:
        """Take one frame. Raises FrameError when the connection must end."""
        op = message.get("op")
        if connection in self._early:
            raise FrameError("a second frame before the answer to the first")
        if connection.member:
            self._dispatch(connection.member, message)
        elif op in _FIRST and self._node.unnamed(str(message.get("member"))):
            self._early[connection] = message
        elif op == Hello.op:
            self._greet(connection, message)
        elif op == Raised.op:  # from holdfast.launch.script, as its only frame on this connection
            self._check(connection, message)
            self._dispatch(str(message["member"]), message)
            connection.send(Noted())
        else:
            raise FrameError(f"the first frame must be a hello, not {op!r:.80}")

    def named(self) -> None:
        """Look again at connections that waited: the launcher has reported processes."""
        for connection, message in list(self._early.items()):
            if not self._node.unnamed(str(message.get("member"))):
                del self._early[connection]
                connection.take(message)

    def drop(self, kind: str, reason: str) -> None:
        """Count and log something that was dropped."""
        log.warning("%s: %s", kind, reason)
        self._node.drop(kind, reason)

    def _dispatch(self, member: str, message: Message) -> None:
        try:
            self._node.receive(member, message)
        except BadMessage as error:
            self.drop("rank_message", f"{member}: {error}")

    def _check(self, connection: _Connection, message: Message) -> None:
        """Raise FrameError unless the peer is the member that it claims to be, and speaks our version."""
        member, pid = message.get("member"), message.get("pid")
        if message.get("version") != VERSION:
            theirs = f"{message.get('version')!r:.80}"
            reason = f"this agent speaks protocol version {VERSION}, not {theirs}: install the same Holdfast"
        elif not isinstance(member, str) or not isinstance(pid, int):
            reason = "the fields member and pid are missing or of the wrong type"
        elif connection.uid not in (os.getuid(), 0):
            reason = f"user {connection.uid} is not the user of this agent"
        # 0: the kernel cannot tell, the peer is in another pid namespace
        elif connection.pid not in (0, pid):
            reason = f"process {connection.pid} claims to be process {pid}"
        else:
            reason = self._node.admit(member, pid)
        if reason:
            connection.send(Refused(reason))
            raise FrameError(f"refused: {reason}")

    def _greet(self, connection: _Connection, message: Message) -> None:
        self._check(connection, message)
        member = str(message["member"])
        try:
            first = self._node.joined(member, message)
        except BadMessage as error:
            raise FrameError(str(error)) from error
        older = self._ranks.get(member)
        connection.member = member
        self._ranks[member] = connection
        if older is not None:
            older.end()
        for answer in first:
            connection.send(answer)


class _Connection(asyncio.Protocol):
    """One process's connection."""

    def __init__(self, server: RankServer) -> None:
        self._server = server
        self._decoder = Decoder(spelled=True)
        self._transport: asyncio.Transport | None = None
        self.member = ""
        self.pid = self.uid = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclass of it
        descriptor = transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(descriptor)) as peer:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, self.uid, _ = struct.unpack("3i", credentials)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._server.receive(self, message)
        except FrameError as error:
            self._break(error)

    def take(self, message: Message) -> None:
        """Take a frame that had to wait."""
        try:
            self._server.receive(self, message)
        except FrameError as error:
            self._break(error)

    def _break(self, error: FrameError) -> None:
        self._server.drop("gate_connection", f"{self.member or self.pid}: {error}")
        self.end()

    def connection_lost(self, _error: Exception | None) -> None:
        self._server.closed(self)

    def send(self, message: AgentMessage) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message.encode(), bytes_max=FORM_BYTES_MAX))

    def end(self) -> None:
        """Close once everything is sent; nothing more is read."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
