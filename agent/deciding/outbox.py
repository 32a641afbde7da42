"""Keep messages to the leader so that none is lost, or sent to a deposed leader, while leaders change.

There are two kinds of message. Levels (beats, member reports) carry a sequence number and are never
kept: the next hello repeats them. A beat in which only steps have moved is sent short (step_beats.py).
One-time events are kept while there is no stream, and those sent shortly before a stream broke are sent again
on the next, since nobody knows whether they arrived; the leader must bear an event twice."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from controlplane.core.records import events
from controlplane.core.records.diagnosis import GradientReport, StepTimes
from controlplane.core.records.node_checks import NodeSensed
from controlplane.core.records.step_beats import BeatShortener

if TYPE_CHECKING:
    from collections.abc import Iterable

KEEPALIVE_S, KEEPALIVE_ANSWER_S = 10, 5
"""Keepalive of the stream: idle seconds before a ping, and seconds for its answer."""

RESEND_S = 2.0 * (KEEPALIVE_S + KEEPALIVE_ANSWER_S)
"""Events sent this shortly before a stream broke may never have arrived: they are sent again.

A cut network does not break a stream until the keepalive finds it silent; the factor 2 is margin."""

_KEPT_MAX = 4096
_LEVELS = (events.NodeBeat, events.StepBeat, events.MemberReport)
"""Levels: the next hello repeats their content, so they are not kept while there is no stream."""
_PASSING = (StepTimes, GradientReport, NodeSensed)
"""Sent once or not at all: a leader that has missed one judges by the next. A new stream begins with the
newest NodeSensed."""


class Outbox:
    """What one agent has sent, or still has to send, to its leaders. Times in s."""

    def __init__(self) -> None:
        self.term = 0  # the highest leader term received
        self.shortens = False  # the leader of now understands short beats
        self._beats = BeatShortener()
        self._seq = itertools.count(1)
        self._kept: collections.deque[Any] = collections.deque(maxlen=_KEPT_MAX)
        self._sent: collections.deque[tuple[float, Any]] = collections.deque(maxlen=_KEPT_MAX)

    def follow(self, term: int) -> bool:
        """Whether to follow a leader of this term. One with an older term is never followed again."""
        if term < self.term:
            return False
        self.term = term
        return True

    def record_sent(self, now: float, event: Any) -> Any:
        """Record that an event goes out now, and return it as it is to be sent."""
        if isinstance(event, _LEVELS):
            return self._level(dataclasses.replace(event, seq=next(self._seq)))
        if isinstance(event, _PASSING):
            return event
        self._sent.append((now, event))
        return event

    def _level(self, event: Any) -> Any:
        """A level as it is to be sent: a beat is short, if the leader can know what it is like."""
        if isinstance(event, events.NodeBeat) and self.shortens:
            return self._beats.shorten(event)
        self._beats.forget()
        return event

    def keep(self, event: Any) -> None:
        """Keep an event for the next stream: there is none now, or it broke before the event left. Levels,
        and what is sent once or not at all, are not kept."""
        if not isinstance(event, (*_LEVELS, *_PASSING)):
            self._kept.append(event)

    def replay(self, now: float, still: Iterable[Any]) -> list[Any]:
        """The events to send first on a new stream.

        These are the ones that may be lost, the kept ones, then `still` (what no leader has answered yet)
        without duplicates."""
        self._beats.forget()
        waits = {id(event) for event in self._kept}
        unconfirmed = [event for at, event in self._sent if now - at < RESEND_S and id(event) not in waits]
        unconfirmed += self._kept
        self._sent.clear()
        self._kept.clear()
        return [*unconfirmed, *(event for event in still if event not in unconfirmed)]
