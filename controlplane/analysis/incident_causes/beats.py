"""Estimate the clock of each node from the times that its agent writes on its messages.

A message takes some time to arrive, never less than none. So of many messages the one that seems to have come
soonest says most: sent minus received is what the clock is ahead, less the delay. All agents send the same
small messages to the same process, so their shortest delays are alike and hardly matter between nodes."""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import median

from controlplane.analysis.failure_logs.policy import STAMP_FLOOR_S
from controlplane.analysis.failure_logs.stamps import ClockOffset
from controlplane.analysis.incident_causes import policy

_JUMPED = 3


class BeatClocks:
    """The clocks of all nodes against the leader's. Times in s since 1970."""

    def __init__(self) -> None:
        self._ahead_s: dict[str, deque[float]] = {}

    def heard(self, node: str, sent_s: float, received_s: float) -> None:
        """Take the times of a message; one that bears no time, or none that can be, is left out."""
        if not (isfinite(sent_s) and isfinite(received_s)) or sent_s <= 0.0:
            return
        ahead_s = self._ahead_s.setdefault(node, deque(maxlen=policy.BEATS_KEPT))
        ahead_s.append(sent_s - received_s)
        newest = list(ahead_s)[-_JUMPED:]
        before = list(ahead_s)[:-_JUMPED]
        if before and max(newest) < max(before) - policy.CLOCK_JUMP_S:
            ahead_s.clear()
            ahead_s.extend(newest)
        elif before and min(newest) > max(before) + policy.CLOCK_JUMP_S:
            ahead_s.clear()
            ahead_s.extend(newest)

    def offsets(self) -> dict[str, ClockOffset]:
        """The clocks that are known, by node: how far each is ahead of the leader's, and within what."""
        return {
            node: ClockOffset(
                max(ahead_s),
                max(max(ahead_s) - median(ahead_s), STAMP_FLOOR_S),
                len(ahead_s),
                "heartbeats",
            )
            for node, ahead_s in self._ahead_s.items()
            if len(ahead_s) >= policy.BEATS_MIN
        }

    def forget(self, nodes: frozenset[str]) -> None:
        """Forget all nodes but these."""
        for node in [name for name in self._ahead_s if name not in nodes]:
            del self._ahead_s[node]
