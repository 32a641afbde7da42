"""What is said to the leader, and whose word counts: terms, numbers of messages, what is said again."""

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
    """One agent's side of its streams. Loses no one-time message while the leader changes. Times in s."""

    def __init__(self) -> None:
        self.term = 0  # the highest heard of
        self._seq = itertools.count(1)
        self._kept: collections.deque[Any] = collections.deque(maxlen=_KEPT_MAX)
        self._said: collections.deque[tuple[float, Any]] = collections.deque(maxlen=_KEPT_MAX)

    def follow(self, term: int) -> bool:
        """Whether a leader of this term is to be followed; an older one never is again."""
        if term < self.term:
            return False
        self.term = term
        return True

    def say(self, now: float, event: Any) -> Any:
        """This goes out now on the stream there is; the event as it is sent."""
        if isinstance(event, _LEVELS):
            return dataclasses.replace(event, seq=next(self._seq))
        self._said.append((now, event))
        return event

    def keep(self, event: Any) -> None:
        """There is no stream, or it broke before this left: what the next hello does not say waits for it."""
        if not isinstance(event, _LEVELS):
            self._kept.append(event)

    def again(self, now: float, still: Iterable[Any]) -> list[Any]:
        """A stream is there: what is to be said first. `still`: what no leader has answered yet."""
        waits = {id(event) for event in self._kept}
        told = [event for at, event in self._said if now - at < RESEND_S and id(event) not in waits]
        told += self._kept
        self._said.clear()
        self._kept.clear()
        return [*told, *(event for event in still if event not in told)]
