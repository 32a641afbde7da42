"""Make an event loop that hears everything grpc has for it in each turn.

grpc.aio tells an event loop of finished operations by one byte each on a socket, and reads one byte in each
turn of the loop, in which it handles all operations that have finished. So with more than one operation a
turn, bytes are left over. When 278 of them fill the socket, grpc's own thread waits until there is room for
one more, and from then on each turn hears of one operation, however many wait: with turns of 50 ms, of 20 a
second. A new leader to which a thousand agents connected came to this within seconds, and was not even told
that etcd had kept its lease (docs/decisions/0011-the-lease-has-a-thread.md). Here all bytes are read in each
turn."""

from __future__ import annotations

import functools
import socket
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable

_QUEUE = "PollerCompletionQueue"
"""The class of grpc.aio (1.66 to 1.85) whose method is called when bytes can be read."""
READ_MAX = 4096
"""More than the socket holds."""


def is_grpc(callback: object) -> bool:
    """Whether this is what grpc.aio has called when operations have finished."""
    of = getattr(callback.func, "__self__", None) if isinstance(callback, functools.partial) else None
    return type(of).__name__ == _QUEUE


def hears_all(fd: Any, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback for readable bytes that takes all of them. Others than grpc's are left alone.

    Only grpc reads them, one a call, and none is read without a look into its queue: it breaks off at an
    operation of a loop that is closed, and what waits behind that one is found by the bytes that are left."""
    if not is_grpc(callback):
        return callback

    def hear(*arguments: Any) -> None:
        for _ in range(len(fd.recv(READ_MAX, socket.MSG_PEEK))):
            callback(*arguments)

    return hear


class HearsAll:
    """Makes an event loop of what it is mixed into that hears all of grpc in each turn."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Watch a file, as any event loop does."""
        return super().add_reader(fd, hears_all(fd, callback), *arguments)  # type: ignore[misc]


class CoordinatorLoop(HearsAll, uvloop.Loop):  # type: ignore[misc]  # uvloop's types differ from asyncio's
    """The event loop of a coordinator."""
