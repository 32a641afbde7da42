"""Carry out the orders that keep a storage in order: Collect deletes, Scrub reads and repairs."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from agent.orders.context import Context, OrderKind, log, one_line
from agent.orders.recollect import MemoryChunks
from controlplane.core.records import effects, events
from holdfast.checkpoint import collect, load, mirroring, scrub
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused, StorageError
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest
from holdfast.checkpoint.storage import pacing

if TYPE_CHECKING:
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.storage.store import Store

_ROTTEN = (CheckpointCorrupt, CheckpointRefused)


class Upkeep:
    """The orders Collect and Scrub."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def kinds(self) -> dict[type[Any], OrderKind]:
        """How each of these orders is carried out. No result is remembered: a storage changes, so a repeated
        order looks again."""
        return {
            effects.Collect: OrderKind(
                "collect", _collect_key, self._collect, self._not_collected, remembered=False
            ),
            effects.Scrub: OrderKind("scrub", _scrub_key, self._scrub, self._not_scrubbed, remembered=False),
        }

    def _collect(self, order: effects.Collect) -> events.Event:
        """Delete from both storages. What could not be deleted is reported with the reason; the leader tries
        again later."""
        spec, freed, reasons = order.spec, 0, []
        for url in dict.fromkeys(filter(None, (spec.storage, spec.mirror))):
            store = self._context.storages.open(url)
            done = collect.run(store, spec.job, order.remove, order.keep, order.busy, now_s=time.time())
            freed += done.bytes_freed
            if done.reason:
                reasons.append(f"{store.url}: {done.reason}")
        self._context.tally.add("collected_bytes", spec.job, freed)
        return events.Collected(
            order.node, self._context.incarnation, spec.job, order.remove, freed, "; ".join(reasons)
        )

    def _not_collected(self, order: effects.Collect, error: Exception) -> events.Event:
        return events.Collected(order.node, self._context.incarnation, order.spec.job, reason=one_line(error))

    def _scrub(self, order: effects.Scrub) -> events.Event:
        context, spec, record = self._context, order.spec, order.record
        store = context.storages.open(spec.storage).slowed(pacing.scrubs)
        mirror = context.storages.open(spec.mirror) if spec.mirror else None
        manifest, repaired = self._manifest(order, store, mirror)
        with contextlib.closing(MemoryChunks(context.paths, manifest)) as memory:
            done = scrub.scrub(store, manifest, mirror, memory, context.stop)
        self._count(spec.job, done, repaired)
        if mirror is not None and not done.failed:
            repaired += self._scrub_mirror(order, store, mirror, manifest)
        return events.Scrubbed(
            order.node,
            context.incarnation,
            record.job,
            record.id,
            repaired + len(done.repaired),
            "; ".join(done.failed[:3]),
            corrupt=bool(done.failed),
        )

    def _scrub_mirror(self, order: effects.Scrub, store: Store, mirror: Store, manifest: Manifest) -> int:
        """Bring the second storage up to date and scrub its copy; return how many files were repaired.

        It is given the checkpoints that it lacks. When it is away, that says nothing about the checkpoint: it
        is counted, and the next scrub tries again."""
        context, job = self._context, order.record.job
        try:
            for name in mirroring.catch_up(store, mirror, job, context.stop):
                context.tally.add("mirror_caught_up", job)
                log.info("checkpoint %s was missing on the mirror %s: copied", name, mirror.url)
            done = scrub.scrub(mirror.slowed(pacing.scrubs), manifest, store, stop=context.stop)
        except StorageError as error:
            context.tally.add("mirror_behind", job)
            log.warning("the mirror could not be scrubbed: %s", error)
            return 0
        self._count(job, done, 0)
        return len(done.repaired)

    def _manifest(self, order: effects.Scrub, store: Store, mirror: Store | None) -> tuple[Manifest, int]:
        """The checkpoint's manifest, and how many files had to be repaired for it (0 or 1)."""
        record = order.record
        try:
            return load.read_manifest(store, record.job, record.id, record.manifest_digest), 0
        except _ROTTEN:
            if mirror is None:
                raise
        name = names.manifest(record.job, record.id)
        try:
            content = mirror.read(name, MANIFEST_BYTES_MAX)
        except FileNotFoundError as error:
            raise CheckpointCorrupt(record.id, "manifest", "is damaged, and missing on the mirror") from error
        manifest = decode_manifest(content, record.job, record.id, record.manifest_digest)
        store.replace(name, content)
        store.flush()
        log.warning("checkpoint %s: its manifest was repaired from %s", record.id, mirror.url)
        return manifest, 1

    def _count(self, job: str, done: scrub.ScrubResult, manifests: int) -> None:
        tally = self._context.tally
        tally.add("scrubbed_bytes", job, done.bytes_read)
        tally.add("scrub_repaired", job, len(done.repaired) + manifests)
        tally.add("scrub_failed", job, len(done.failed))

    def _not_scrubbed(self, order: effects.Scrub, error: Exception) -> events.Event:
        record = order.record
        return events.Scrubbed(
            order.node,
            self._context.incarnation,
            record.job,
            record.id,
            reason=one_line(error),
            corrupt=isinstance(error, _ROTTEN),
        )


def _collect_key(order: effects.Collect) -> tuple[str, ...]:
    return (order.spec.job,)


def _scrub_key(order: effects.Scrub) -> tuple[str, ...]:
    return order.record.job, order.record.id
