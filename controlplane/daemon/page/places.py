"""Who keeps a place at the page where there are too many: strangers apart from those who are known, and
whoever has most goes first, so that nobody's crowd is another's cost."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING

from controlplane.daemon.page.http import Refused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

STRANGERS_MAX = 128
"""Connections of those who have not shown who they are: with one more, the oldest goes of the address that
has most."""
KNOWN_MAX = 512
"""Of those who have: with one more, the oldest goes of the caller who has most."""
OF_ONE_MAX = 64
"""Of one caller who is known: with one more, that caller's oldest goes."""
STREAMS_OF_ONE_MAX = 32
"""Streams of news of one caller who is known; one more is refused."""
_V6_PREFIX = 64
"""An IPv6 host has so many addresses as it likes, below a network of so many bits."""


class Visit:
    """One connection, from an address. `who` once the caller has shown it; "": a stranger."""

    def __init__(self, address: str, who: str = "") -> None:
        self.address, self.who = address, who
        self.task: asyncio.Task[None] | None = None
        self.leaving = False

    def leave(self) -> None:
        """Hang up on it."""
        self.leaving = True
        if self.task is not None:
            self.task.cancel()


def leaving(visits: Iterable[Visit]) -> Visit | None:
    """The connection that has to go, of all in the order in which they came; None: there is room."""
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
    """Whose address this is: itself, or the network that one IPv6 host has for its own."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _V6_PREFIX), strict=False).network_address)


class Streams:
    """Streams of news, counted by caller. Strangers' are bounded as their connections are."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def check(self, who: str) -> None:
        """Raise Refused when this caller has as many as one may have."""
        if who and self._open[who] >= STREAMS_OF_ONE_MAX:
            reason = f"{who} has {STREAMS_OF_ONE_MAX} streams of news: close a page that shows this cluster"
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, reason)

    async def run(self, who: str, stream: Callable[[], Awaitable[None]]) -> None:
        """Run one to its end; when others have begun since `check`, that is now."""
        if who and self._open[who] >= STREAMS_OF_ONE_MAX:
            return
        self._open[who] += 1
        try:
            await stream()
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


class Paces:
    """So many per second for each name, and no more memory than for `keys_max` names: further ones share."""

    def __init__(self, per_s: float, keys_max: int = 1024) -> None:
        self._per_s, self._keys_max = per_s, keys_max
        self._of: dict[str, tuple[float, float]] = {}  # name: room, and when that was so

    def allow(self, name: str, now_s: float) -> bool:
        """Whether this name may do it once more now."""
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
        """Those who have rested are like those who have never come."""
        rested = [name for name in self._of if self._room(name, now_s) >= self._per_s]
        for name in rested:
            del self._of[name]
