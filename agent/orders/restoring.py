"""Carry out the order Load: bring a checkpoint's shard, or a share of its bytes, into a member's arena."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.orders.context import Context, OrderKind, one_line
from controlplane.core.records import effects, events
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.ipc import layout

if TYPE_CHECKING:
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import Arena


class RestoreOrders:
    """The order Load."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def kinds(self) -> dict[type[Any], OrderKind]:
        """How a Load is carried out. Its result is not remembered: the slot may be overwritten, so a repeated
        order loads again."""
        return {effects.Load: OrderKind("load", _key, self._load, self._failed, remembered=False)}

    def _load(self, order: effects.Load) -> events.Event:
        record, context = order.record, self._context
        store = context.storages.open(order.spec.storage, order.spec.mirror)
        with context.timed("load", record.job), self._arena(order, store) as arena:
            load.load(
                store,
                arena,
                job=record.job,
                checkpoint=record.id,
                digest=record.manifest_digest,
                shard=order.shard,
                share=order.share,
                shares=order.shares,
                stop=context.stop,
            )
        return self._answer(order)

    def _arena(self, order: effects.Load, store: Store) -> Arena:
        """The member's arena with room for the shard; created when a fresh rank has none yet."""
        record = order.record
        manifest = load.read_manifest(store, record.job, record.id, record.manifest_digest)
        shard = load.shard_of(manifest, order.shard)
        return self._context.arenas.ensure_to_fill(
            order.member, layout.room(shard.data_bytes, len(shard.header))
        )

    def _failed(self, order: effects.Load, error: Exception) -> events.Event:
        return self._answer(order, one_line(error), isinstance(error, CheckpointCorrupt | CheckpointRefused))

    def _answer(self, order: effects.Load, reason: str = "", corrupt: bool = False) -> events.Event:
        return events.Loaded(
            order.node,
            self._context.incarnation,
            order.record.job,
            order.record.id,
            order.member,
            reason,
            corrupt,
            order.shard,
            order.share,
            order.shares,
        )


def _key(order: effects.Load) -> tuple[str, ...]:
    return order.record.job, order.record.id, order.member, order.shard, f"{order.share}/{order.shares}"
