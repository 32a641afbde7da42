"""Who carries out which order of the coordinator: the core, or a room of the shell."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from agent.deciding.events import Ordered
from agent.deciding.orders import TABLE as DECIDED
from agent.orders.snapshot_queue import SNAPSHOT_ORDERS
from controlplane.core.records import effects
from holdfast.logs import incident

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.daemon.node import Node

log = logging.getLogger("holdfast.agent.orders")


class Orders:
    """The handlers of the orders."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._table: dict[type[Any], Callable[[Any], None]] = {
            **dict.fromkeys(DECIDED, self._decide),
            effects.Complete: self._complete,
            effects.Release: self._release,
            effects.Drained: self._drained,
            effects.Replicate: node.peers.replicate,
            effects.Discard: node.peers.discard,
            effects.Fetch: node.peers.fetch,
            effects.CollectStacks: node.stacks.order,
            effects.LookAtPeers: node.looks.order,
            **dict.fromkeys(SNAPSHOT_ORDERS, node.snapshots.order),
        }

    def carry_out(self, order: Any) -> None:
        """Carry out one order. What cannot be is counted; it never ends the agent."""
        try:
            self._table[type(order)](order)
        except (OSError, ValueError):
            log.exception("the order %s cannot be carried out", type(order).__name__)
            self._node.count("orders_failed")

    def _decide(self, order: Any) -> None:
        self._node.decide(Ordered(order, incident()))

    def _complete(self, order: effects.Complete) -> None:
        self._node.peers.complete(order)
        self._decide(order)

    def _release(self, order: effects.Release) -> None:
        self._node.peers.release(order)
        self._decide(order)

    def _drained(self, order: effects.Drained) -> None:
        log.info("this node is drained: %s", order.reason)
        self._node.drained.set()
