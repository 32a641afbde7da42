"""Simulate leaders that were stopped for longer than their lease, and go on as if nothing had happened.

The leader that was elected meanwhile has a newer term. The old one acts on everything that was waiting for
it, and its orders and writes are still in flight: only the term keeps it from doing harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev

if TYPE_CHECKING:
    from controlplane.core.cluster import Cluster
    from tests.sim.world import World

TTL_S = 3.0
"""How long a leader may be frozen before it is replaced."""
STALE_S = 2.0
"""How long a replaced leader takes to find out, by its clock or by etcd: here as long as it may."""


class Frozen:
    """One stopped leader."""

    def __init__(self, world: World, cluster: Cluster, term: int) -> None:
        self.world, self.cluster, self.term = world, cluster, term
        self.waiting: list[ev.Event] = []
        self.runs = False

    def hear(self, event: ev.Event) -> None:
        """Give it an event, which waits while the process is stopped."""
        if self.runs:
            self._step(event)
        else:
            self.waiting.append(event)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        world = self.world
        world.say("thaw", f"term {self.term}, {len(self.waiting)} events wait")
        if world.term == -1 and world.etcd.term == self.term:
            self.runs = True
            world.resume(self)
            return
        self.runs = True
        for event in (*self.waiting, ev.Tick()):
            self._step(event)
        world.clock.after(STALE_S, self._end)

    def _end(self) -> None:
        self.world.frozen.pop(self.term, None)

    def _step(self, event: ev.Event) -> None:
        effects: list[Any] = self.cluster.step(self.world.clock.now, event)
        for effect in effects:
            if isinstance(effect, fx.Form | fx.Launch | fx.Collect):
                self.world.safety.effect(effect)
            self.world.carry_out(effect, self.term)


def freeze(world: World) -> None:
    """Stop the leader (SIGSTOP) for a while; another is elected when its lease is over."""
    if world.cluster is None:
        return
    for_s = world.rng.choice((1.0, 2.5, 4.0, 8.0))
    world.say("freeze", f"term {world.term} for {for_s} s")
    frozen = Frozen(world, world.cluster, world.term)
    world.frozen[world.term] = frozen
    world.cluster, world.term = None, -1
    world.clock.after(for_s, frozen.thaw)

    def vacant() -> None:
        if world.term == -1 and not frozen.runs:
            world.safety.crashed()
            world.elect()

    world.clock.after(TTL_S + world.rng.uniform(0.1, 1.0), vacant)
