"""Route each order of the coordinator to what carries it out: the core, or a component of the node."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from agent.deciding.events import Ordered
from agent.deciding.orders import TABLE as DECIDED
from agent.orders.snapshot_queue import SNAPSHOT_ORDERS
from controlplane.core.records import effects
from controlplane.core.records.diagnosis import ProbeLinks, ProfileRank
from controlplane.core.records.logs import ReadLog
from controlplane.wire.relayed import BeatsTaken, RelayBeats
from holdfast.logs import incident

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.daemon.node_checks import NodeChecks
    from agent.daemon.profiling import RankProfiles
    from agent.daemon.stacks import Stacks
    from agent.deciding import events as ev
    from agent.links.prober import LinkProber
    from agent.logs.sending import LogSender
    from agent.orders.snapshot_queue import SnapshotQueue
    from agent.peers.dialling import PeerDialler
    from agent.peers.service import Peers
    from agent.relays.collecting import BeatCollector
    from agent.relays.sending import BeatSender

log = logging.getLogger("holdfast.agent.orders")


class OrderRouter:
    """A table from kind of order to its handler.

    `decide` passes an event to the core, `drained` is called when the coordinator reports this node as
    drained, `count` counts orders that failed."""

    def __init__(
        self,
        *,
        decide: Callable[[ev.Event], None],
        snapshots: SnapshotQueue,
        peers: Peers,
        stacks: Stacks,
        looks: PeerDialler,
        profiles: RankProfiles,
        links: LinkProber,
        log_sender: LogSender,
        checks: NodeChecks,
        beat_sender: BeatSender,
        beat_collector: BeatCollector,
        drained: Callable[[], None],
        count: Callable[[str], None],
    ) -> None:
        self._pass_to_core, self._peers, self._set_drained, self._count = decide, peers, drained, count
        self._checks = checks
        self._table: dict[type[Any], Callable[[Any], None]] = {
            **dict.fromkeys(DECIDED, self._decide),
            effects.Launch: self._launch,
            effects.CheckNode: checks.order,
            effects.Complete: self._complete,
            effects.Release: self._release,
            effects.Drained: self._drained,
            effects.Replicate: peers.replicate,
            effects.Discard: peers.discard,
            effects.Fetch: peers.fetch,
            effects.CollectStacks: stacks.order,
            effects.LookAtPeers: looks.order,
            ProfileRank: profiles.order,
            ProbeLinks: links.order,
            ReadLog: log_sender.order,
            RelayBeats: beat_sender.order,
            BeatsTaken: beat_collector.taken,
            **dict.fromkeys(SNAPSHOT_ORDERS, snapshots.order),
        }

    def carry_out(self, order: Any) -> None:
        """Carry out one order. An order that fails is logged and counted; it never ends the agent."""
        try:
            self._table[type(order)](order)
        except (OSError, ValueError):
            log.exception("the order %s cannot be carried out", type(order).__name__)
            self._count("orders_failed")

    def _decide(self, order: Any) -> None:
        self._pass_to_core(Ordered(order, incident()))

    def _launch(self, order: effects.Launch) -> None:
        self._checks.give_way(order.member)
        self._decide(order)

    def _complete(self, order: effects.Complete) -> None:
        self._peers.complete(order)
        self._decide(order)

    def _release(self, order: effects.Release) -> None:
        self._peers.release(order)
        self._decide(order)

    def _drained(self, order: effects.Drained) -> None:
        log.info("this node is drained: %s", order.reason)
        self._set_drained()
