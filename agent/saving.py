"""Carries out the orders that make a checkpoint: its parts, their seal, its mirror, its manifest's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.checkpoint import save
from agent.checkpoint.arena import Arena
from agent.checkpoint.errors import CheckpointError
from agent.site import Held, Kind, Site, said
from controlplane.core import effects, events
from controlplane.core.model import CheckpointRecord

if TYPE_CHECKING:
    from agent.checkpoint.arena import SlotView


class _Slot(Held):
    """A snapshot that is not overwritten, pinned when its order came."""

    def __init__(self, arena: Arena, slot: SlotView) -> None:
        self.arena, self.slot = arena, slot

    def close(self) -> None:
        with self.arena:
            self.arena.unpin(self.slot)


class Saving:
    """The orders Persist and Publish."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def kinds(self) -> dict[type[Any], Kind]:
        """How each of its orders is carried out."""
        return {
            effects.Persist: Kind("upload", _persist_key, self._persist, self._persist_failed, self._pinned),
            effects.Publish: Kind("commit", _publish_key, self._publish, self._publish_failed),
        }

    def _pinned(self, order: effects.Persist) -> _Slot:
        arena = Arena.open(self._site.paths.arena(order.member))
        try:
            wanted = (order.step, order.generation)
            slot = next((s for s in arena.slots if (s.step, s.generation) == wanted), None)
            if slot is None:
                raise CheckpointError(f"snapshot {order.step} of {order.member} is no longer in its arena")
            arena.pin(slot)
        except BaseException:
            arena.close()
            raise
        return _Slot(arena, slot)

    def _persist(self, order: effects.Persist, held: _Slot) -> events.Event:
        site, spec = self._site, order.spec
        done = save.persist(
            held.slot,
            store=site.storages.writable(spec.storage),
            job=spec.job,
            checkpoint=order.checkpoint,
            step=order.step,
            generation=order.generation,
            kind=order.kind,
            base=order.base,
            versions=order.versions,
            stop=site.stop,
        )
        site.tally.add("uploaded_bytes", spec.job, done.bytes_written)
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
        return events.Persisted(order.node, site.incarnation, record)

    def _publish(self, order: effects.Publish) -> events.Event:
        record, site = order.record, self._site
        save.publish(site.storages.open(order.spec.storage), record.job, record.id, record.manifest_digest)
        return events.Published(order.node, site.incarnation, record.job, record.id)

    def _persist_failed(self, order: effects.Persist | effects.Seal, error: Exception) -> events.Event:
        return events.PersistFailed(
            order.node, self._site.incarnation, order.spec.job, order.checkpoint, said(error)
        )

    def _publish_failed(self, order: effects.Publish, error: Exception) -> events.Event:
        record = order.record
        return events.Published(order.node, self._site.incarnation, record.job, record.id, said(error))


def _persist_key(order: effects.Persist) -> tuple[str, ...]:
    return order.spec.job, order.checkpoint, order.member, order.shard, f"{order.share}/{order.shares}"


def _publish_key(order: effects.Publish) -> tuple[str, ...]:
    return order.record.job, order.record.id, order.record.manifest_digest
