"""Share a node's storages, arenas, counters and stop signal among the modules for snapshot orders."""

from __future__ import annotations

import collections
import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.storage_settings import Allowed
from holdfast import masking
from holdfast.checkpoint.errors import CheckpointError, StorageError
from holdfast.checkpoint.storage import pacing, probing
from holdfast.checkpoint.storage.retrying import Patience
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.host.arena_files import ArenaFiles
    from agent.host.paths import Paths
    from controlplane.core.records import events
    from controlplane.settings import AgentSettings
    from holdfast.checkpoint.storage.stats import Totals

FAILURES = (CheckpointError, ArenaError, OSError, ValueError)
"""Errors that an order about snapshots may end with. Any other is a bug, and logged with its traceback."""
log = logging.getLogger("holdfast.agent.snapshots")


@dataclass(frozen=True, slots=True)
class OrderKind:
    """How one kind of order is carried out. `work` and `prepare` run in threads and may raise."""

    pool: str
    """The thread that carries it out, see NICE in snapshot_queue.py."""
    key: Callable[[Any], tuple[str, ...]]  # orders with equal keys are the same order, repeated
    work: Callable[..., events.Event]  # takes the order, and what `prepare` returned
    failed: Callable[[Any, Exception], events.Event]
    """Makes the event that reports an error to the leader."""
    prepare: Callable[[Any], Hold] | None = None  # what must be done before a thread is free
    remembered: bool = True  # a repeated order gets the result of the one that succeeded


class Hold:
    """What an order holds on to from its arrival until it is done."""

    def close(self) -> None:
        """Let go of it. Called in a thread."""


class OrderCounters:
    """Counters for the metrics, written by threads: numbers and seconds, by family and label values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()

    def add(self, family: str, job: str, value: float = 1, *, label: str = "") -> None:
        """Add to a job's counter. `label`: the value of the family's second label, where it has two."""
        labels = (job, label) if label else (job,)
        with self._lock:
            self._values[family, labels] += value  # type: ignore[assignment]  # Counter's floats

    def of(self, family: str) -> dict[tuple[str, ...], float]:
        """The values of one family, by the values of its labels."""
        with self._lock:
            return {labels: value for (of, labels), value in self._values.items() if of == family}


class Storages:
    """The storages that orders name. Thread-safe.

    Each is opened once and probed before its first upload. One that this agent may not open is refused."""

    def __init__(self, settings: AgentSettings) -> None:
        self._allowed = Allowed(settings.storage_allowed)
        self._patience = Patience(deadline_s=settings.storage_deadline_s)
        self._lock = threading.Lock()
        self._stores: dict[tuple[str, str], Store] = {}
        self._limits: dict[str, tuple[str, ...]] = {}
        pacing.uploads.set(settings.upload_bytes_per_s)
        pacing.scrubs.set(settings.scrub_bytes_per_s)

    @property
    def limits(self) -> dict[str, tuple[str, ...]]:
        """What each probed storage cannot guarantee, in sentences for people."""
        with self._lock:
            return dict(self._limits)

    def totals(self) -> dict[str, Totals]:
        """The traffic of each storage so far."""
        with self._lock:
            opened = [store for (_, mirror), store in self._stores.items() if not mirror]
        return {store.url: store.stats.totals() for store in opened}

    def open(self, url: str, mirror: str = "") -> Store:
        """Open the storage at this URL. Files that are missing or damaged there are read from its mirror.

        Raises StorageError."""
        with self._lock:
            store = self._opened(url)
            if not mirror:
                return store
            if (url, mirror) not in self._stores:
                both = store.slowed(pacing.UploadPace())
                both.second = self._opened(mirror)
                self._stores[url, mirror] = both
            return self._stores[url, mirror]

    def writable(self, url: str) -> Store:
        """Open a storage for writing. It is probed first; what it cannot guarantee is logged once."""
        store = self.open(url)
        with self._lock:
            known = store.url in self._limits
        if not known:
            limits = probing.examine(store).limits
            with self._lock:
                self._limits[store.url] = limits
            for limit in limits:
                log.warning("storage %s: %s", store.url, limit)
        return store

    def close(self) -> None:
        """Close the connections and lift the limits of speed, so that what still waits for a storage fails
        soon."""
        for pace in (pacing.uploads, pacing.scrubs):
            pace.set(0)
        with self._lock:
            opened = [store for (_, mirror), store in self._stores.items() if not mirror]
        for store in opened:
            store.close()

    def _opened(self, url: str) -> Store:
        if refusal := self._allowed.refusal(url, os.path.realpath):
            raise StorageError(refusal, url=masking.url(url))
        if (url, "") not in self._stores:
            self._stores[url, ""] = Store.open(url, patience=self._patience)
        return self._stores[url, ""]


@dataclass(frozen=True, slots=True)
class Context:
    """What the orders about snapshots need of their node."""

    settings: AgentSettings
    incarnation: int
    paths: Paths
    arenas: ArenaFiles
    storages: Storages
    stop: threading.Event = field(default_factory=threading.Event)
    tally: OrderCounters = field(default_factory=OrderCounters)

    @contextmanager
    def timed(self, stage: str, job: str) -> Iterator[None]:
        """Count the seconds that a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.tally.add("stage_seconds", job, time.monotonic() - began, label=stage)


def one_line(error: Exception) -> str:
    """An error in one line."""
    return str(error) or type(error).__name__
