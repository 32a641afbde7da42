"""Carries out the orders about snapshots: make durable, publish, load. In threads, each order once.

Uploads have one thread and loads another, both niced: a restore never waits behind an upload."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agent.checkpoint import layout, load, save
from agent.checkpoint.arena import Arena
from agent.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from agent.checkpoint.shm import ArenaError
from agent.checkpoint.store import Store
from controlplane.core import effects, events
from controlplane.core.model import CheckpointRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.paths import Paths

_NICE = 10
_RESULTS_MAX = 256
_FAILURES = (CheckpointError, ArenaError, OSError, ValueError)
log = logging.getLogger("holdfast.agent.snapshots")

SnapshotOrder = effects.Persist | effects.Publish | effects.Load
SNAPSHOT_ORDERS = (effects.Persist, effects.Publish, effects.Load)


class Snapshots:
    """The node's orders about snapshots. `tell` hears each result, `loaded` each arena that changed."""

    def __init__(
        self,
        paths: Paths,
        incarnation: int,
        tell: Callable[[events.Event], None],
        loaded: Callable[[str], None],
    ) -> None:
        self._paths, self._incarnation, self._tell, self._loaded = paths, incarnation, tell, loaded
        self._pools = {
            effects.Persist: ThreadPoolExecutor(1, "upload", initializer=_be_nice),
            effects.Load: ThreadPoolExecutor(1, "load"),
        }
        self._pools[effects.Publish] = self._pools[effects.Persist]
        self._stores: dict[str, Store] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._results: dict[tuple[Any, ...], events.Event | None] = {}
        self.bytes_written = 0
        self._work: dict[type[Any], Callable[[Any], events.Event]] = {
            effects.Persist: self._persist,
            effects.Publish: self._publish,
            effects.Load: self._load,
        }
        self._failed: dict[type[Any], Callable[[Any, Exception], events.Event]] = {
            effects.Persist: self._persist_failed,
            effects.Publish: self._publish_failed,
            effects.Load: self._load_failed,
        }

    @property
    def queued(self) -> int:
        """How many orders are not done yet."""
        return len(self._running)

    def wants(self, member: str) -> bool:
        """Whether an order that is not done yet reads this member's arena."""
        return any(result is None and member in key for key, result in self._results.items())

    def order(self, order: SnapshotOrder) -> None:
        """Begin to carry out an order. One that runs is not begun again; of one that succeeded the result
        is told again; one that failed is tried again."""
        key = _key(order)
        if key in self._results:
            result = self._results[key]
            if result is not None:
                self._tell(result)
            return
        self._results[key] = None
        task = asyncio.get_running_loop().create_task(self._carry_out(order, key))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Drop what has not begun, stop the uploads, and wait for what runs."""
        self._stop.set()
        for pool in set(self._pools.values()):
            pool.shutdown(wait=False, cancel_futures=True)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for pool in set(self._pools.values()):
            await asyncio.to_thread(pool.shutdown, True)

    async def _carry_out(self, order: SnapshotOrder, key: tuple[Any, ...]) -> None:
        kind = type(order)
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._pools[kind], self._work[kind], order)
        except Exception as error:  # told to whoever ordered it; one not foreseen is logged whole
            unforeseen = not isinstance(error, _FAILURES)
            log.warning("%s of %s failed: %s", kind.__name__, key[1:], error, exc_info=unforeseen)
            del self._results[key]
            self._tell(self._failed[kind](order, error))
            return
        self._results[key] = result
        while len(self._results) > _RESULTS_MAX:
            del self._results[next(iter(self._results))]
        if isinstance(order, effects.Load):
            del self._results[key]  # the slot may be overwritten later: load again when asked again
            self._loaded(order.member)
        self._tell(result)

    def _store(self, url: str) -> Store:
        with self._lock:
            if url not in self._stores:
                self._stores[url] = Store.open(url)
            return self._stores[url]

    def _persist(self, order: effects.Persist) -> events.Event:
        spec = order.spec
        with Arena.open(self._paths.arena(order.member)) as arena:
            slot = next((s for s in arena.slots if (s.step, s.generation) == _what(order)), None)
            if slot is None:
                raise CheckpointError(f"snapshot {order.step} of {order.member} is no longer in its arena")
            with arena.pinned(slot):
                done = save.persist(
                    slot,
                    store=self._store(spec.storage),
                    job=spec.job,
                    checkpoint=order.checkpoint,
                    step=order.step,
                    generation=order.generation,
                    kind=order.kind,
                    base=order.base,
                    versions=order.versions,
                    stop=self._stop,
                )
        self.bytes_written += done.bytes_written
        record = CheckpointRecord(
            job=spec.job,
            id=order.checkpoint,
            step=order.step,
            generation=order.generation,
            kind=order.kind,
            base=order.base,
            manifest_digest=done.digest,
            bytes_total=done.bytes_total,
            bytes_written=done.bytes_written,
            versions=order.versions,
        )
        return events.Persisted(order.node, self._incarnation, record)

    def _publish(self, order: effects.Publish) -> events.Event:
        record = order.record
        save.publish(self._store(order.spec.storage), record.job, record.id, record.manifest_digest)
        return events.Published(order.node, self._incarnation, record.job, record.id)

    def _load(self, order: effects.Load) -> events.Event:
        record = order.record
        store = self._store(order.spec.storage)
        with self._arena_for(order, store) as arena:
            load.load(store, arena, job=record.job, checkpoint=record.id, digest=record.manifest_digest)
        return events.Loaded(
            order.node, self._incarnation, record.job, record.id, order.member,
            shard=order.shard, share=order.share, shares=order.shares,
        )  # fmt: skip

    def _arena_for(self, order: effects.Load, store: Store) -> Arena:
        """The member's arena; made to the checkpoint's size when the rank, fresh, has asked for none yet."""
        path, record = self._paths.arena(order.member), order.record
        if path.exists():
            return Arena.open(path)
        manifest = load.read_manifest(store, record.job, record.id, record.manifest_digest)
        needs = (layout.room(shard.data_bytes, len(shard.header)) for shard in manifest.shards)
        return Arena.create(path, max(needs, default=0))

    def _persist_failed(self, order: effects.Persist, error: Exception) -> events.Event:
        return events.PersistFailed(
            order.node, self._incarnation, order.spec.job, order.checkpoint, _said(error)
        )

    def _publish_failed(self, order: effects.Publish, error: Exception) -> events.Event:
        record = order.record
        return events.Published(order.node, self._incarnation, record.job, record.id, _said(error))

    def _load_failed(self, order: effects.Load, error: Exception) -> events.Event:
        record, corrupt = order.record, isinstance(error, CheckpointCorrupt | CheckpointRefused)
        return events.Loaded(
            order.node, self._incarnation, record.job, record.id, order.member, _said(error), corrupt,
            order.shard, order.share, order.shares,
        )  # fmt: skip


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _what(order: effects.Persist) -> tuple[int, int]:
    return order.step, order.generation


def _key(order: SnapshotOrder) -> tuple[Any, ...]:
    if isinstance(order, effects.Persist):
        return ("persist", order.spec.job, order.checkpoint, order.member)
    if isinstance(order, effects.Publish):
        return ("publish", order.record.job, order.record.id, order.record.manifest_digest)
    return ("load", order.record.job, order.record.id, order.member)


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
