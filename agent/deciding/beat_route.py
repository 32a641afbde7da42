"""Decide for each short heartbeat whether it goes through a relay or directly to the leader.

The leader may name another agent, a relay, that passes heartbeats on (`agent/relays`). What the relay has
passed on it answers only when the leader has it. So a sender needs to trust no relay: if one heartbeat is not
answered by the time of the next, that one goes directly, and so do all for `RETRY_S`. Whatever becomes of a
relay, the leader hears each living node at least every second interval, a third of the node timeout.

Whole heartbeats, reports and events always go directly."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

RETRY_S = 60.0
"""After a relay has failed, heartbeats go directly for so long. Times 2 after each failure in a row."""
RETRY_MAX_S = 600.0
UNTRIED = "not connected yet"


@dataclass(slots=True)
class BeatRoute:
    """The way of one node's short heartbeats. Times in s on one clock.

    - `relay`, `address`: the agent that the leader has named, and where its peer service is; "": none.
    - `open`: the stream to it is up.
    - `why`: why heartbeats go directly although a relay is named; "": they do not."""

    relay: str = ""
    address: str = ""
    open: bool = False
    why: str = ""
    retry_at: float = 0.0
    failures: int = 0
    waits_for: int | None = None  # the number of the last one, while the leader is not known to have it

    def name(self, relay: str, address: str) -> bool:
        """Take the leader's word on which relay to use. Returns whether it is news."""
        if (relay, address) == (self.relay, self.address):
            return False
        self.relay, self.address = relay, address
        self.retry_at, self.failures = -inf, 0
        self._close(UNTRIED if address else "")
        return True

    def wants(self, now: float) -> bool:
        """Whether a stream to the relay should be opened now."""
        return bool(self.address) and not self.open and now >= self.retry_at

    def opened(self) -> None:
        """The stream to the relay is up."""
        self.open, self.why, self.waits_for = True, "", None

    def through(self, now: float, seq: int) -> bool:
        """Whether the heartbeat of this number goes through the relay; else it goes directly."""
        if not self.open:
            return False
        if self.waits_for is not None:
            self.failed(now, f"{self.relay} has not passed on heartbeat {self.waits_for}")
            return False
        self.waits_for = seq
        return True

    def taken(self, seq: int) -> None:
        """The leader has the heartbeat of this number."""
        if seq == self.waits_for:
            self.waits_for, self.failures = None, 0

    def failed(self, now: float, why: str) -> None:
        """The stream to the relay is over, or of no use."""
        if not self.address:
            return
        self.failures += 1
        self.retry_at = now + min(RETRY_MAX_S, RETRY_S * 2 ** (self.failures - 1))
        self._close(why)

    def _close(self, why: str) -> None:
        self.open, self.why, self.waits_for = False, why, None
