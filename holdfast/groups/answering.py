"""Answer at gloo's own listeners in place of peers that will not come.

Of every two ranks one connects, and the other one waits at its listener until that happens. A rank that waits
there has no connection that could be broken, and gloo checks nothing else meanwhile. So this process connects
to each of its own listeners once for every rank that may be awaited, and claims to be that rank. The wait
ends with a connection that has ended already: no byte of a collective can come over it."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import TYPE_CHECKING

from holdfast.groups import sockets

if TYPE_CHECKING:
    from collections.abc import Iterable

_CALL_S = 0.25
_NUMBER = struct.Struct("=q")  # what gloo's connecting side sends first: the number of the wait it answers


class Answering:
    """The listeners that were answered at. One answer each is enough: gloo keeps it for later waits."""

    def __init__(self) -> None:
        self._answered: set[sockets.Handle] = set()

    def begin(self) -> None:
        """Begin a generation: its listeners are new."""
        self._answered.clear()

    def answer(self, handles: Iterable[sockets.Handle], ranks: int) -> None:
        """Answer at those of these sockets that listen as gloo does, in place of `ranks` ranks."""
        for handle in set(handles) - self._answered:
            address = sockets.listens_at(handle)
            if address is not None and not ipaddress.ip_address(address[0]).is_unspecified:
                if all(_call(address, number) for number in range(ranks)):
                    self._answered.add(handle)


def _call(address: tuple[str, int], number: int) -> bool:
    """Whether the listener has taken the call; if not, try again later."""
    try:
        with socket.create_connection(address, _CALL_S) as call:
            call.sendall(_NUMBER.pack(number))
    except OSError:
        return False
    return True
