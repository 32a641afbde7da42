"""Mark the nodes and jobs that have just changed, so that the status page looks at them first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects, events

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event

_QUIET = (
    events.NodeBeat,
    events.StepBeat,
    events.NodesHeard,
    events.Tick,
    events.Stored,
    events.SnapshotReady,
    events.SnapshotVouched,
)
"""Events that come all the time. What they change is found when the page looks at every node in turn."""
_INNER = ("status", "verdict", "incident", "state", "generation", "record", "spec")
"""Fields of events and effects that hold another record, which may name a job or a node."""
_ORDERS = (effects.Release, *effects.STORES)


class Changes:
    """The nodes and jobs that changed since the page looked at them. `news` is set with each mark.

    While nobody watches, an event costs one look at a flag."""

    def __init__(self) -> None:
        self.watched = False
        self.nodes: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.news = asyncio.Event()

    def event(self, event: Event) -> None:
        """Mark what this event is about. The core has taken it."""
        if self.watched and not isinstance(event, _QUIET):
            self._mark(event)

    def effect(self, effect: Effect) -> None:
        """Mark what this effect is about. The core has decided on it."""
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
        """Mark nothing more: nobody watches."""
        self.watched = False
        self.nodes.clear()
        self.jobs.clear()
