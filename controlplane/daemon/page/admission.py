"""Decide who keeps a connection to the page when there are too many.

Strangers are counted apart from callers who are known, and whoever has most connections loses one first. So a
crowd of one visitor costs no other visitor anything."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING

from controlplane.daemon.page.http import HttpRefused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

STRANGERS_MAX = 128
"""Connections of visitors who are not known. With one more, the address that has most loses its oldest."""
KNOWN_MAX = 512
"""Connections of known callers. With one more, the caller who has most loses the oldest."""
OF_ONE_MAX = 64
"""Connections of one known caller. With one more, that caller loses the oldest."""
STREAMS_OF_ONE_MAX = 32
"""Live streams of one known caller; one more is refused."""
_V6_PREFIX = 64
"""Bits of the IPv6 network that counts as one address: a host may use all addresses in it."""


class Visit:
    """One connection, from an address. `who` is set once the caller is known; "": a stranger."""

    def __init__(self, address: str, who: str = "") -> None:
        self.address, self.who = address, who
        self.task: asyncio.Task[None] | None = None
        self.leaving = False

    def leave(self) -> None:
        """Disconnect it."""
        self.leaving = True
        if self.task is not None:
            self.task.cancel()


def leaving(visits: Iterable[Visit]) -> Visit | None:
    """Return the connection that has to go; None: there is room. `visits` are in order of arrival."""
    staying = [visit for visit in visits if not visit.leaving]
    strangers = [visit for visit in staying if not visit.who]
    known = [visit for visit in staying if visit.who]
    if len(strangers) > STRANGERS_MAX:
        return _oldest_of_most(strangers, lambda visit: visit.address)
    most = Counter(visit.who for visit in known).most_common(1)
    if len(known) > KNOWN_MAX or (most and most[0][1] > OF_ONE_MAX):
        return _oldest_of_most(known, lambda visit: visit.who)
    return None


def _oldest_of_most(visits: list[Visit], of: Callable[[Visit], str]) -> Visit:
    by: defaultdict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        by[of(visit)].append(visit)
    return max(by.values(), key=len)[0]


def network(address: str) -> str:
    """Return what counts as one visitor's address: an IPv4 address, or the network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _V6_PREFIX), strict=False).network_address)


class PageStreams:
    """Live streams, counted by caller. Those of strangers are bounded by their connections."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def check(self, who: str) -> None:
        """Raise HttpRefused when this caller has as many streams as one may have."""
        if who and self._open[who] >= STREAMS_OF_ONE_MAX:
            reason = f"{who} has {STREAMS_OF_ONE_MAX} open live streams: close a page that shows this cluster"
            raise HttpRefused(HTTPStatus.TOO_MANY_REQUESTS, reason)

    async def run(self, who: str, stream: Callable[[], Awaitable[None]]) -> None:
        """Run a stream to its end; end it at once if the caller has begun too many since `check`."""
        if who and self._open[who] >= STREAMS_OF_ONE_MAX:
            return
        self._open[who] += 1
        try:
            await stream()
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


class RateLimiter:
    """Allows each name so many acts per second (a token bucket each).

    It remembers `keys_max` names at most; further ones share one bucket."""

    def __init__(self, per_s: float, keys_max: int = 1024) -> None:
        self._per_s, self._keys_max = per_s, keys_max
        self._of: dict[str, tuple[float, float]] = {}  # by name: its room, and when it had that

    def allow(self, name: str, now_s: float) -> bool:
        """Return whether this name may act once more now."""
        if name not in self._of and len(self._of) >= self._keys_max:
            self._forget(now_s)
            name = name if len(self._of) < self._keys_max else ""
        room = self._room(name, now_s)
        self._of[name] = (room - 1 if room >= 1 else room), now_s
        return room >= 1

    def _room(self, name: str, now_s: float) -> float:
        room, at_s = self._of.get(name, (self._per_s, now_s))
        return min(self._per_s, room + (now_s - at_s) * self._per_s)

    def _forget(self, now_s: float) -> None:
        """Forget the names whose buckets are full again: they are like new ones."""
        rested = [name for name in self._of if self._room(name, now_s) >= self._per_s]
        for name in rested:
            del self._of[name]
