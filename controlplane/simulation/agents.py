"""Simulate nodes: as much of an agent as the core can see. All ranks of a node move together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import events as ev
from controlplane.core.records.model import WHOLE_STATE, MemberPhase
from controlplane.simulation import records

if TYPE_CHECKING:
    from controlplane.simulation.ranks import Rank


class Agent:
    """One simulated node. `boots` is its incarnation, `seq` the number of its newest heartbeat."""

    __slots__ = ("boots", "name", "ranks", "seq", "stopping", "up")

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = False
        self.boots = 0
        self.seq = 0
        self.ranks: dict[str, Rank] = {}
        self.stopping = 0  # newest generation that it was ordered to leave; 0: none

    def joined(self, slots: int) -> ev.NodeJoined:
        """Start the node (again), and return the event of its joining."""
        self.up, self.boots, self.seq = True, self.boots + 1, 0
        self.ranks, self.stopping = {}, 0
        launcher = f"{self.name}/{self.boots}"
        return ev.NodeJoined(self.name, self.boots, launcher, self.name, slots, 1)

    def beat(self, job: str) -> ev.NodeBeat:
        """Return a heartbeat with the statuses of all of its ranks."""
        self.seq += 1
        members = tuple([records.status(rank, job) for rank in self.ranks.values()])
        return ev.NodeBeat(self.name, self.boots, self.seq, 1, members)

    def in_generation(self, upto: int) -> list[Rank]:
        """Return its ranks that form or train in a generation up to number `upto`."""
        return [
            rank
            for rank in self.ranks.values()
            if rank.phase in (MemberPhase.FORMING, MemberPhase.RUNNING) and rank.generation <= upto
        ]


def shard_id(rank: int, ranks_per_replica: int) -> str:
    """Return the shard id of a rank: the same at the same place of every replica of the model."""
    return WHOLE_STATE if ranks_per_replica <= 1 else f"part {rank % ranks_per_replica}"
