"""Answer at gloo's own listeners in place of peers that will not come.

Of each two ranks one connects, and the other one waits at its listener until that has happened. Who waits so
has no connection that could be broken, and gloo looks at nothing else meanwhile. So this process calls each
of its listeners, once for every rank that may be waited for, and says that it is that rank: the wait is over,
with a connection that has ended. No byte of a collective can come over it."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import TYPE_CHECKING

from holdfast.groups import sockets

if TYPE_CHECKING:
    from collections.abc import Iterable

_CALL_S = 0.25
_NUMBER = struct.Struct("=q")  # what gloo's connecting side says first: which of the waits it is for


class Answering:
    """The listeners that were answered at. One answer is enough: gloo keeps it for whatever comes to wait."""

    def __init__(self) -> None:
        self._answered: set[sockets.Handle] = set()

    def begin(self) -> None:
        """A generation forms: its listeners are to come."""
        self._answered.clear()

    def answer(self, handles: Iterable[sockets.Handle], ranks: int) -> None:
        """Answer at those of these sockets that listen as gloo does, in the place of so many ranks."""
        for handle in set(handles) - self._answered:
            address = sockets.listens_at(handle)
            if address is not None and not ipaddress.ip_address(address[0]).is_unspecified:
                if all(_call(address, number) for number in range(ranks)):
                    self._answered.add(handle)


def _call(address: tuple[str, int], number: int) -> bool:
    """Whether the listener has taken the call; if not, it is to be tried again."""
    try:
        with socket.create_connection(address, _CALL_S) as call:
            call.sendall(_NUMBER.pack(number))
    except OSError:
        return False
    return True
