"""Which nodes and jobs something has just happened to: whoever shows them looks at those first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects, events

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event

_QUIET = (
    events.NodeBeat,
    events.NodesHeard,
    events.Tick,
    events.Stored,
    events.SnapshotReady,
    events.SnapshotVouched,
)
"""Events that come all the time: what they change is found by looking at every node in turn."""
_INNER = ("status", "verdict", "incident", "state", "generation", "record", "spec")
_ORDERS = (effects.Release, *effects.STORES)


class Changes:
    """Costs one look at a flag while nobody watches. `news` is set with each mark."""

    def __init__(self) -> None:
        self.watched = False
        self.nodes: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.news = asyncio.Event()

    def event(self, event: Event) -> None:
        """The core has taken this event."""
        if self.watched and not isinstance(event, _QUIET):
            self._mark(event)

    def effect(self, effect: Effect) -> None:
        """The core has decided this."""
        if self.watched and not isinstance(effect, _ORDERS):
            self._mark(effect)

    def _mark(self, record: Any) -> None:
        for each in (record, *(getattr(record, name, None) for name in _INNER)):
            job, node, nodes = (getattr(each, name, None) for name in ("job", "node", "nodes"))
            if isinstance(job, str) and job:
                self.jobs[job] = None
            if isinstance(node, str) and node:
                self.nodes[node] = None
            for name in nodes if isinstance(nodes, tuple) else ():
                self.nodes[name] = None
        self.news.set()

    def forget(self) -> None:
        """Nobody watches any more."""
        self.watched = False
        self.nodes.clear()
        self.jobs.clear()
