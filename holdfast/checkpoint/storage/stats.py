"""Count what a storage has done, for metrics."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

READ, WRITE = "read", "write"


@dataclass(slots=True)
class _Traffic:
    """One direction. `busy_s`: the time in which at least one transfer ran.

    `running`: transfers now; `since`: when the first of them began (monotonic, s)."""

    bytes: int = 0
    count: int = 0
    busy_s: float = 0.0
    running: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of one storage since it was opened. Retries are by kind: see `causes.KINDS`."""

    retries: dict[str, int]
    gave_up: dict[str, int]
    bytes_read: int
    bytes_written: int
    read_s: float
    write_s: float


@dataclass(slots=True)
class Stats:
    """Counts from many threads."""

    _traffic: dict[str, _Traffic] = field(default_factory=lambda: {READ: _Traffic(), WRITE: _Traffic()})
    _retries: dict[str, int] = field(default_factory=dict)
    _gave_up: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def transfer(self, direction: str) -> Iterator[None]:
        """A context around one transfer. The time of several that overlap counts once."""
        traffic = self._traffic[direction]
        with self._lock:
            if not traffic.running:
                traffic.since = time.monotonic()
            traffic.running += 1
        try:
            yield
        finally:
            with self._lock:
                traffic.running -= 1
                if not traffic.running:
                    traffic.busy_s += time.monotonic() - traffic.since

    def moved(self, direction: str, nbytes: int) -> None:
        """Count bytes that have arrived."""
        with self._lock:
            self._traffic[direction].bytes += nbytes
            self._traffic[direction].count += 1

    def retried(self, kind: str) -> None:
        """Count a failed attempt that is repeated."""
        with self._lock:
            self._retries[kind] = self._retries.get(kind, 0) + 1

    def surrendered(self, kind: str) -> None:
        """Count an operation that failed at its deadline."""
        with self._lock:
            self._gave_up[kind] = self._gave_up.get(kind, 0) + 1

    def totals(self) -> Totals:
        """All counters as they are now."""
        with self._lock:
            read, write = self._traffic[READ], self._traffic[WRITE]
            return Totals(
                retries=dict(self._retries),
                gave_up=dict(self._gave_up),
                bytes_read=read.bytes,
                bytes_written=write.bytes,
                read_s=read.busy_s,
                write_s=write.busy_s,
            )
