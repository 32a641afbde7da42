"""Retry transient errors: capped exponential pauses with full jitter, up to a deadline."""

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
"""An attempt that begins just before the deadline has so long: no driver understands less than nothing."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an operation may take, in seconds: `attempt_s` one attempt at 8 MiB or less, `deadline_s` all
    of them."""

    deadline_s: float = 300.0
    attempt_s: float = 60.0
    connect_s: float = 5.0
    silence_s: float = (
        15.0  # a connection on which nothing comes for so long is dead, where the driver can tell
    )
    pause_first_s: float = 0.1
    pause_max_s: float = 10.0

    def of(self, nbytes: int, bytes_per_s: float = 0.0) -> Patience:
        """The patience with an operation that moves `nbytes`, at no more than that rate if it is not 0: one
        attempt has as long again for every further 8 MiB."""
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
        """The result of the first attempt that succeeds; `attempt` is given the seconds it may take. Raises
        its error when that is not transient, GaveUpError at the deadline or when stopped. `whole`: of unknown
        length, one attempt may take all of the time."""
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
        """Remember the newest error that says something. (The last attempt is often cut short by the
        deadline, which says nothing about the cause.)"""
        self.failed += 1
        self._why = causes.words(error) if str(error) else self._why
        self._kinds[kind] = self._kinds.get(kind, 0) + 1

    def _pause(self) -> bool:
        """Wait before the next attempt; False when there is no time left for one."""
        limit = min(self._patience.pause_max_s, self._patience.pause_first_s * 2 ** min(self.failed - 1, 30))
        pause = self._source.uniform(0, limit)
        return pause < self._left() and not self._stop.wait(pause)

    def _left(self) -> float:
        return self._began + self._patience.deadline_s - time.monotonic()

    def _tried(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self._kinds.items())
        took = time.monotonic() - self._began
        why = "told to stop" if self._stop.is_set() else "gave up"
        return f"{why} after {self.failed} attempts in {took:.1f} s ({kinds})"
