"""Number and keep messages to the leader, so that none is lost or told to a deposed one while leaders
change."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from controlplane.core.records import events

if TYPE_CHECKING:
    from collections.abc import Iterable

KEEPALIVE_S, KEEPALIVE_ANSWER_S = 10, 5
"""Of a stream."""

RESEND_S = 2.0 * (KEEPALIVE_S + KEEPALIVE_ANSWER_S)
"""What was said so shortly before a stream broke may never have arrived: it is said again. A network that is
cut breaks no stream until the keepalive finds it silent."""

_KEPT_MAX = 4096
_LEVELS = (events.NodeBeat, events.MemberReport)
"""What the next hello says anyhow: not kept while there is no stream."""


class Outbox:
    """One agent's side of its streams. Times in s."""

    def __init__(self) -> None:
        self.term = 0  # the highest heard of
        self._seq = itertools.count(1)
        self._kept: collections.deque[Any] = collections.deque(maxlen=_KEPT_MAX)
        self._said: collections.deque[tuple[float, Any]] = collections.deque(maxlen=_KEPT_MAX)

    def follow(self, term: int) -> bool:
        """Whether to follow a leader of this term; one with an older term is never followed again."""
        if term < self.term:
            return False
        self.term = term
        return True

    def say(self, now: float, event: Any) -> Any:
        """Note an event that goes out now on the stream; returns it as it is sent."""
        if isinstance(event, _LEVELS):
            return dataclasses.replace(event, seq=next(self._seq))
        self._said.append((now, event))
        return event

    def keep(self, event: Any) -> None:
        """Keep an event for the next stream: there is none, or it broke before this left. What the next hello
        says anyhow is not kept."""
        if not isinstance(event, _LEVELS):
            self._kept.append(event)

    def again(self, now: float, still: Iterable[Any]) -> list[Any]:
        """The events to send first on a new stream. `still`: what no leader has answered yet."""
        waits = {id(event) for event in self._kept}
        told = [event for at, event in self._said if now - at < RESEND_S and id(event) not in waits]
        told += self._kept
        self._said.clear()
        self._kept.clear()
        return [*told, *(event for event in still if event not in told)]
