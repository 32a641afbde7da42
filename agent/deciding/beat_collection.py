"""Collect the heartbeats of other nodes, pass them on in batches, and say which the leader has taken.

A batch goes out every half interval. Of each sender only the newest heartbeat waits. A heartbeat that is
passed on late makes a node look alive that may have died since. So when this relay was stopped for a
while, when the leader does not answer, or when the stream to it ends, all senders are sent away (`close`),
and what waits is dropped: they send directly."""

from __future__ import annotations

from dataclasses import dataclass, field

BATCHES_PER_INTERVAL = 2
BATCHES_OPEN_MAX = 4
"""Batches that may wait for the leader's answer: two intervals. Senders have given up by then."""


@dataclass(slots=True)
class _Waiting:
    seq: int
    data: bytes


@dataclass(slots=True)
class BeatCollection:
    """What one relay holds. Times in s on one clock; `interval_s`: between heartbeats of one node."""

    senders_max: int
    bytes_max: int
    interval_s: float = 5.0
    senders: set[str] = field(default_factory=set)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _open: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # by number: whose heartbeats
    _number: int = 0
    _looked_at: float = 0.0

    @property
    def every_s(self) -> float:
        """How often a batch is due."""
        return self.interval_s / BATCHES_PER_INTERVAL

    def begin(self, now: float) -> None:
        """Batches are made from now on, every `every_s`."""
        self._looked_at = now

    def admit(self, sender: str) -> str:
        """Take a sender, under a name that is used once. Returns why not; "": it is one now."""
        if len(self.senders) >= self.senders_max:
            return f"{len(self.senders)} nodes send their heartbeats through here already"
        self.senders.add(sender)
        return ""

    def leave(self, sender: str) -> None:
        """A sender's stream is over."""
        self.senders.discard(sender)
        self._waiting.pop(sender, None)

    def add(self, sender: str, seq: int, data: bytes) -> None:
        """Take one heartbeat."""
        if sender in self.senders:
            self._waiting[sender] = _Waiting(seq, data)

    def trouble(self, now: float) -> str:
        """Why all senders must be sent away now; "": there is no reason."""
        away_s, self._looked_at = now - self._looked_at, now
        if away_s > self.interval_s:
            return f"this relay was stopped for {away_s:.1f} s"
        if len(self._open) >= BATCHES_OPEN_MAX:
            return f"the leader has not answered {len(self._open)} batches"
        return ""

    def batch(self) -> tuple[int, list[bytes]] | None:
        """The number and the heartbeats of the batch that is due; None: there are none."""
        found: list[tuple[str, int]] = []
        data: list[bytes] = []
        room = self.bytes_max
        for sender, each in list(self._waiting.items()):
            if len(each.data) > room or len(data) == self.senders_max:
                break  # the rest waits for the next batch
            del self._waiting[sender]
            found.append((sender, each.seq))
            data.append(each.data)
            room -= len(each.data)
        if not found:
            return None
        self._number += 1
        self._open[self._number] = found
        return self._number, data

    def taken(self, number: int) -> list[tuple[str, int]]:
        """The senders, and the numbers of their heartbeats, that the leader has taken with this batch."""
        for older in [each for each in self._open if each < number]:
            del self._open[older]  # answers come in order: that one was not taken
        return self._open.pop(number, [])

    def close(self) -> None:
        """All senders are sent away."""
        self.senders.clear()
        self._waiting.clear()
        self._open.clear()
