"""Carry out the orders that make a checkpoint: Persist, Seal, Mirror and Publish.

Persist uploads one writer's chunks and its part of the manifest; Seal writes the manifest under a pending
name, once all parts are there; Mirror copies what it names to the second storage; Publish gives it its final
name, after etcd has recorded the checkpoint. Killed at any point, what is left is a whole checkpoint or
none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.orders.context import Context, Hold, OrderKind, log, one_line
from controlplane.core.records import effects, events
from controlplane.core.records.model import CheckpointRecord
from holdfast.checkpoint import load, mirroring, save, suspect
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, StorageError
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX
from holdfast.ipc.arena import Arena

if TYPE_CHECKING:
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import SlotView


class _Slot(Hold):
    """A snapshot that is pinned from the arrival of its order, so that it is not overwritten before its
    upload."""

    def __init__(self, arena: Arena, slot: SlotView) -> None:
        self.arena, self.slot = arena, slot

    def close(self) -> None:
        with self.arena:
            self.arena.unpin(self.slot)


class SaveOrders:
    """The orders Persist, Seal, Mirror and Publish."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def kinds(self) -> dict[type[Any], OrderKind]:
        """How each of these orders is carried out."""
        return {
            effects.Persist: OrderKind("upload", _part_key, self._persist, self._not_persisted, self._pinned),
            effects.Seal: OrderKind("commit", _finalize_key, self._finalize, self._not_persisted),
            effects.Mirror: OrderKind("mirror", _record_key, self._mirror, self._not_mirrored),
            effects.Publish: OrderKind("commit", _publish_key, self._publish, self._not_published),
        }

    # ------------------------------------------------------------ one writer's part

    def _pinned(self, order: effects.Persist) -> _Slot:
        arena = Arena.open(self._context.paths.arena(order.member), touched=False)
        try:
            slot = arena.find(order.step, generation=order.generation, shard=order.shard)
            if slot is None:
                raise CheckpointError(_absent(order, arena))
            arena.pin(slot)
        except BaseException:
            arena.close()
            raise
        return _Slot(arena, slot)

    def _persist(self, order: effects.Persist, held: _Slot) -> events.Event:
        context, spec = self._context, order.spec
        with context.timed("persist", spec.job):
            part = save.persist_part(
                held.slot,
                store=context.storages.writable(spec.storage),
                job=spec.job,
                checkpoint=order.checkpoint,
                step=order.step,
                generation=order.generation,
                kind=order.kind,
                base=order.base,
                versions=order.versions,
                rank=order.rank,
                shard=order.shard,
                share=order.share,
                shares=order.shares,
                member=order.member,
                codec=spec.codec,
                stop=context.stop,
            )
        context.tally.add("uploaded_bytes", spec.job, part.bytes_written)
        return events.PartPersisted(order.node, context.incarnation, part)

    def _not_persisted(self, order: effects.Persist | effects.Seal, error: Exception) -> events.Event:
        return events.PersistFailed(
            order.node, self._context.incarnation, order.spec.job, order.checkpoint, one_line(error)
        )

    # ------------------------------------------------------------ the whole checkpoint

    def _finalize(self, order: effects.Seal) -> events.Event:
        context, spec = self._context, order.spec
        store = context.storages.open(spec.storage)
        with self._context.timed("seal", spec.job):
            _check_alone(store, order)
            done = save.finalize(
                store,
                job=spec.job,
                checkpoint=order.checkpoint,
                step=order.step,
                generation=order.generation,
                kind=order.kind,
                base=order.base,
                versions=order.versions,
                parts=order.parts,
            )
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
            shards=tuple(sorted(done.shards)),
        )
        return events.Persisted(order.node, context.incarnation, record)

    def _publish(self, order: effects.Publish) -> events.Event:
        """Publish on the first storage, which decides.

        A second storage that cannot follow has everything but the final name; a later scrub gives it that. A
        record that is bad was published before: its manifest gets a mark beside it."""
        record, context, spec = order.record, self._context, order.spec
        if record.bad:
            return self._mark(order)
        with self._context.timed("publish", record.job):
            save.publish(context.storages.open(spec.storage), record.job, record.id, record.manifest_digest)
            if spec.mirror and spec.commit_when == "both":
                self._publish_mirror(order)
        return events.Published(order.node, context.incarnation, record.job, record.id)

    def _mark(self, order: effects.Publish) -> events.Event:
        """Mark a suspect checkpoint on both storages."""
        record, context, spec = order.record, self._context, order.spec
        for url in dict.fromkeys(filter(None, (spec.storage, spec.mirror))):
            suspect.mark(context.storages.open(url), record.job, record.id, record.bad)
        return events.Published(order.node, context.incarnation, record.job, record.id, understood=True)

    def _publish_mirror(self, order: effects.Publish) -> None:
        record, spec = order.record, order.spec
        try:
            save.publish(
                self._context.storages.open(spec.mirror), record.job, record.id, record.manifest_digest
            )
        except StorageError as error:
            self._context.tally.add("mirror_behind", spec.job)
            log.warning(
                "checkpoint %s is committed, but not yet published on the mirror: %s", record.id, error
            )

    def _not_published(self, order: effects.Publish, error: Exception) -> events.Event:
        record, life = order.record, self._context.incarnation
        return events.Published(order.node, life, record.job, record.id, one_line(error), understood=True)

    # ------------------------------------------------------------ the second storage

    def _mirror(self, order: effects.Mirror) -> events.Event:
        """Mirror the manifest: under its pending name before the commit, under its final name afterwards."""
        record, context, spec = order.record, self._context, order.spec
        with self._context.timed("mirror", record.job):
            source, target = context.storages.open(spec.storage), context.storages.writable(spec.mirror)
            manifest = load.read_manifest(source, record.job, record.id, record.manifest_digest)
            last = _last(source, record)
            copied = mirroring.mirror_manifest(source, target, manifest, last=last, stop=context.stop)
        context.tally.add("mirrored_bytes", spec.job, copied.bytes)
        return events.Mirrored(order.node, context.incarnation, record.job, record.id)

    def _not_mirrored(self, order: effects.Mirror, error: Exception) -> events.Event:
        record = order.record
        return events.Mirrored(order.node, self._context.incarnation, record.job, record.id, one_line(error))


def _check_alone(store: Store, order: effects.Seal) -> None:
    """Raise CheckpointError when the storage has later checkpoints than this cluster has made of the job.

    The cluster began anew, and another life of the job is there. Looked at with each full checkpoint."""
    if order.base != order.checkpoint:
        return
    own, job = (order.generation, order.step), order.spec.job
    others = [each for each in load.listing(store, job) if (each.generation, each.step) > own]
    if others:
        raise CheckpointError(
            f"{store.url} holds checkpoints of another life of job {job}, the newest {others[0].id}: this "
            "cluster does not know them, as after the loss of etcd, and the job began without them. To go on "
            f"from them: holdfast stop, then holdfast checkpoint adopt {store.url} --job {job}, then submit "
            "it again. Else submit it under another name, or with another storage"
        )


def _absent(order: effects.Persist, arena: Arena) -> str:
    other = arena.find(order.step, generation=order.generation)
    if other is None:
        return f"snapshot {order.step} of {order.member} is no longer in its arena"
    return f"snapshot {order.step} of {order.member} holds shard {other.shard}, not {order.shard}"


def _last(source: Store, record: CheckpointRecord) -> tuple[str, bytes]:
    """The manifest as the first storage has it: under its final name, else under the pending one."""
    own = names.manifest(record.job, record.id)
    waiting = names.pending(record.job, record.id, record.manifest_digest)
    for name in (own, waiting):
        try:
            return name, source.read(name, MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            continue
    raise CheckpointCorrupt(record.id, "manifest", f"is not at {source.url}")


def _part_key(order: effects.Persist) -> tuple[str, ...]:
    return order.spec.job, order.checkpoint, order.member, order.shard, f"{order.share}/{order.shares}"


def _finalize_key(order: effects.Seal) -> tuple[str, ...]:
    return order.spec.job, order.checkpoint, *sorted(part.digest for part in order.parts)


def _publish_key(order: effects.Publish) -> tuple[str, ...]:
    return order.record.job, order.record.id, order.record.manifest_digest, order.record.bad


def _record_key(order: effects.Mirror) -> tuple[str, ...]:
    return order.record.job, order.record.id, order.record.manifest_digest
