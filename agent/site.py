"""What the rooms that carry out snapshot orders share: one node's storages, arenas, figures, and its end."""

from __future__ import annotations

import collections
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.checkpoint.errors import CheckpointError
from agent.checkpoint.shm import ArenaError
from agent.checkpoint.store import Store, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.arenas import Rooms
    from agent.paths import Paths
    from controlplane.core import events
    from controlplane.settings import AgentSettings

FAILURES = (CheckpointError, ArenaError, OSError, ValueError)
"""What an order about snapshots may end with; anything else is a fault of ours and logged whole."""
log = logging.getLogger("holdfast.agent.snapshots")


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of order is carried out. `work` and `prepare` run in threads and may raise."""

    pool: str
    key: Callable[[Any], tuple[str, ...]]  # equal keys: the same order, said again
    work: Callable[..., events.Event]  # of the order, and of what `prepare` gave
    failed: Callable[[Any, Exception], events.Event]
    prepare: Callable[[Any], Held] | None = None  # what must not wait for the pool
    remembered: bool = True  # the result of one that succeeded is told again


class Held:
    """What an order keeps hold of from the moment it comes until it is done."""

    def close(self) -> None:
        """Let go of it; runs in a thread."""


class Tally:
    """Figures for the metrics, written by threads: counts and seconds by (family, label)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: collections.Counter[tuple[str, str]] = collections.Counter()

    def add(self, family: str, label: str, value: float = 1) -> None:
        """Count something."""
        with self._lock:
            self._values[family, label] += value  # type: ignore[assignment]  # Counter's floats

    def of(self, family: str) -> dict[str, float]:
        """One family, by label."""
        with self._lock:
            return {label: value for (of, label), value in self._values.items() if of == family}


class Storages:
    """The storages that orders name, each opened once. A storage is probed before its first upload."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._probed: dict[str, tuple[str, ...]] = {}

    @property
    def limits(self) -> dict[str, tuple[str, ...]]:
        """What each probed storage cannot promise, in words."""
        return dict(self._probed)

    def open(self, url: str) -> Store:
        """The storage at this URL. Raises StorageError."""
        with self._lock:
            if url not in self._stores:
                self._stores[url] = Store.open(url)
            return self._stores[url]

    def writable(self, url: str) -> Store:
        """The same, known to take what is written: what it cannot promise is logged, once."""
        store = self.open(url)
        if url not in self._probed:
            limits = probe(url).limits
            with self._lock:
                known = self._probed.setdefault(url, limits) is not limits
            for limit in () if known else limits:
                log.warning("storage %s: %s", store.url, limit)
        return store


@dataclass(frozen=True, slots=True)
class Site:
    """One node, as the orders about snapshots see it."""

    settings: AgentSettings
    incarnation: int
    paths: Paths
    rooms: Rooms
    storages: Storages
    stop: threading.Event = field(default_factory=threading.Event)
    tally: Tally = field(default_factory=Tally)


def said(error: Exception) -> str:
    """An error in one line."""
    return str(error) or type(error).__name__
