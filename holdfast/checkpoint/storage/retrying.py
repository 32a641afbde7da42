"""Retry transient errors: exponential pauses with a cap and full jitter, up to a deadline."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from holdfast.checkpoint.storage import causes

if TYPE_CHECKING:
    import random
    import threading
    from collections.abc import Callable

    from holdfast.checkpoint.storage.stats import Stats

T = TypeVar("T")
_ATTEMPT_BYTES = 8 << 20
_LEAST_S = 0.001
"""The time of an attempt that begins just before the deadline: no driver accepts a negative time."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an operation may take, in seconds.

    - `deadline_s`: all attempts together.
    - `attempt_s`: one attempt at up to 8 MiB.
    - `connect_s`: to connect.
    - `silence_s`: a connection on which nothing arrives for so long is dead, if the driver can tell.
    - `pause_first_s`, `pause_max_s`: limits of the first pause, and of any pause."""

    deadline_s: float = 300.0
    attempt_s: float = 60.0
    connect_s: float = 5.0
    silence_s: float = 15.0
    pause_first_s: float = 0.1
    pause_max_s: float = 10.0

    def of(self, nbytes: int, bytes_per_s: float = 0.0) -> Patience:
        """The patience with an operation that moves `nbytes`, at `bytes_per_s` if that is not 0.

        For every further 8 MiB, one attempt has as much time again."""
        paced_s = 2 * nbytes / bytes_per_s if bytes_per_s else 0.0
        attempt_s = self.attempt_s * max(1.0, nbytes / _ATTEMPT_BYTES) + paced_s
        return replace(self, attempt_s=attempt_s, deadline_s=self.deadline_s + paced_s)


PATIENCE = Patience()


class GaveUpError(OSError):
    """The deadline came before an attempt succeeded. `tried`: how often, and why not."""

    def __init__(self, tried: str, cause: str) -> None:
        super().__init__(cause)
        self.tried = tried


class Attempts:
    """The attempts of one operation. `failed` counts those that did not succeed."""

    def __init__(
        self, patience: Patience, stats: Stats, stop: threading.Event, source: random.Random
    ) -> None:
        self.failed = 0
        self._patience, self._stats, self._stop, self._source = patience, stats, stop, source
        self._kinds: dict[str, int] = {}
        self._why = "no answer in time"
        self._began = time.monotonic()

    def run(self, attempt: Callable[[float], T], *, whole: bool = False) -> T:
        """The result of the first attempt that succeeds. `attempt` receives the seconds that it may take.

        `whole`: its length is not known, so one attempt may take all of the time. Raises the attempt's error
        if it is not transient, GaveUpError at the deadline or when stopped."""
        limit_s = self._patience.deadline_s if whole else self._patience.attempt_s
        while True:
            try:
                return attempt(max(_LEAST_S, min(limit_s, self._left())))
            except Exception as error:
                kind = causes.transient(error)
                if kind is None:
                    raise
                self._note(kind, error)
                if not self._pause():
                    self._stats.surrendered(kind)
                    raise GaveUpError(self._tried(), self._why) from error
                self._stats.retried(kind)

    def _note(self, kind: str, error: Exception) -> None:
        """Remember the newest error that has a message.

        The last attempt is often cut short by the deadline, which says nothing about the cause."""
        self.failed += 1
        self._why = causes.words(error) if str(error) else self._why
        self._kinds[kind] = self._kinds.get(kind, 0) + 1

    def _pause(self) -> bool:
        """Wait before the next attempt; False if no time is left for one."""
        limit = min(self._patience.pause_max_s, self._patience.pause_first_s * 2 ** min(self.failed - 1, 30))
        pause = self._source.uniform(0, limit)
        return pause < self._left() and not self._stop.wait(pause)

    def _left(self) -> float:
        return self._began + self._patience.deadline_s - time.monotonic()

    def _tried(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self._kinds.items())
        took = time.monotonic() - self._began
        why = "stopped on request" if self._stop.is_set() else "gave up"
        return f"{why} after {self.failed} attempts in {took:.1f} s ({kinds})"
