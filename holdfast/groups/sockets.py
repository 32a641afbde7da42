"""List this process's sockets, and break a blocked collective through them.

If a peer falls silent (stopped, or its network cut), no connection breaks, and aborting a gloo group does not
free a thread that waits in it. Shutting down the group's own connected sockets does, within milliseconds."""

from __future__ import annotations

import os
import select
import socket
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DESCRIPTORS = "/proc/self/fd"
_SYN_SENT = 2  # a TCP state, the first byte of TCP_INFO


@dataclass(frozen=True, slots=True)
class Handle:
    """A socket: its descriptor, and its inode, which shows whether the descriptor still means this socket."""

    descriptor: int
    inode: int


def opened() -> frozenset[Handle]:
    """Every socket of this process now."""
    found = []
    for name in os.listdir(_DESCRIPTORS):
        try:
            status = os.fstat(int(name))
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode):
            found.append(Handle(int(name), status.st_ino))
    return frozenset(found)


def borrow(handle: Handle) -> socket.socket | None:
    """A duplicate of this very socket to look at or shut down, or None if it is gone. The caller closes
    it."""
    try:
        duplicate = os.dup(handle.descriptor)
    except OSError:
        return None
    if os.fstat(duplicate).st_ino != handle.inode:
        os.close(duplicate)
        return None
    return socket.socket(fileno=duplicate)


@contextmanager
def _internet(handle: Handle) -> Iterator[socket.socket | None]:
    """A duplicate of this very socket while one looks at it; None if it is gone or not a TCP socket."""
    borrowed = borrow(handle)
    if borrowed is None:
        yield None
        return
    with borrowed:
        known = borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM
        yield borrowed if known else None


def ports(handle: Handle) -> tuple[int, int, str] | None:
    """(own port, peer's port, peer's IP) of a TCP socket; peer's port 0 for a listener; None for any
    other."""
    with _internet(handle) as borrowed:
        if borrowed is None:
            return None
        try:
            if borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return borrowed.getsockname()[1], 0, ""
            peer = borrowed.getpeername()
            return borrowed.getsockname()[1], peer[1], peer[0].removeprefix("::ffff:")
        except OSError:  # not connected
            return None


def listens_at(handle: Handle) -> tuple[str, int] | None:
    """Address and port at which this socket listens; None if it does not."""
    with _internet(handle) as borrowed:
        if borrowed is None or not borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        address = borrowed.getsockname()
        return str(address[0]), int(address[1])


def connecting(handle: Handle) -> bool:
    """Whether this socket waits for its peer's first answer, which may never come."""
    with _internet(handle) as borrowed:
        if borrowed is None:
            return False
        return borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _SYN_SENT


def shut(handle: Handle) -> None:
    """Shut a socket down both ways, connected or not yet. A listener is left alone: gloo would end the
    process."""
    borrowed = borrow(handle)
    if borrowed is None:
        return
    with borrowed:
        try:
            if not borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                borrowed.shutdown(socket.SHUT_RDWR)
        except OSError:  # its peer has closed it already
            return


def close_inherited(handles: frozenset[Handle]) -> None:
    """In a forked child: close these, so that peers notice the parent's death."""
    for handle in handles:
        try:
            if os.fstat(handle.descriptor).st_ino == handle.inode:
                os.close(handle.descriptor)
        except OSError:
            continue


def whole(handles: frozenset[Handle]) -> bool:
    """Whether all these connected sockets still exist and are open both ways."""
    poll = select.poll()
    for handle in handles:
        try:
            if os.fstat(handle.descriptor).st_ino != handle.inode:
                return False
        except OSError:
            return False
        poll.register(handle.descriptor, select.POLLRDHUP)
    return not poll.poll(0)
