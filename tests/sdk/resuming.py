"""Decide for the tests' node where a generation's state comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ipc.arena import SlotState

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.node import Node


def nearest(node: Node, seats: list[str]) -> Message:
    """The nearest state: of a donor, else the newest snapshot of any member, else the state that the script
    built."""
    held: list[int] = []
    limit = _limit(node, seats)
    for name in seats:
        ready = node.members[name].ready
        held.append(ready["held_step"] if ready and ready["held_step"] <= limit else -1)
    best = max(held)
    if any(shard not in ("", "all") for shard in node.shards.values()):
        return _sharded(node, seats, held)
    if best >= 0:
        return {"tier": "donor", "step": best, "rank": held.index(best), "member": "", "checkpoint": ""}
    saved = [m for m in node.members.values() if 0 <= m.snapshot[1] <= limit]
    if saved:
        newest = max(saved, key=lambda member: member.snapshot)
        assert newest.arena is not None
        return {
            "tier": "memory",
            "step": newest.snapshot[1],
            "rank": 0,
            "member": newest.name,
            "checkpoint": "",
            "arena": str(newest.arena.path),
        }
    return _fresh(node, seats)


def _fresh(node: Node, seats: list[str]) -> Message:
    """The state that the script built, from the first rank that still has it; rank -1 when none has."""
    rank = next((rank for rank, name in enumerate(seats) if not node.worn(name)), -1)
    return {"tier": "fresh", "step": 0, "rank": rank, "member": "", "checkpoint": ""}


def _limit(node: Node, seats: list[str]) -> int:
    """The newest step whose body has ended on every rank that lives."""
    said = [node.members[name].ready for name in seats]
    ended = [ready["ended_step"] for ready in said if ready and ready["ended_step"] is not None]
    return min(ended, default=1 << 60)


def _sharded(node: Node, seats: list[str], held: list[int]) -> Message:
    """The newest step at which every shard is held by a living rank or is in a member's arena. Each shard
    comes from its nearest copy."""
    steps: dict[int, dict[str, tuple[int, str]]] = {}
    for rank, step in enumerate(held):
        if step >= 0 and node.members[seats[rank]].shard:
            steps.setdefault(step, {}).setdefault(node.members[seats[rank]].shard, (rank, ""))
    for name, member in node.members.items():
        for slot in member.arena.slots if member.arena is not None else ():
            if slot.state == SlotState.READY:
                home = next(rank for rank, shard in node.shards.items() if shard == member.shard)
                place = seats.index(name) if name in seats else home
                steps.setdefault(slot.step, {}).setdefault(member.shard, (place, name))
    wanted = set(node.shards.values())
    for step, copies in sorted(steps.items(), reverse=True):
        if copies.keys() >= wanted:
            sources = [
                {"shard": shard, "tier": "memory" if name else "donor", "rank": rank, "member": name}
                | ({"arena": str(node.shm / f"{name}.arena")} if name else {})
                for shard, (rank, name) in copies.items()
            ]
            tier = max(str(source["tier"]) for source in sources)
            return {"tier": tier, "step": step, "rank": 0, "sources": sources}
    return _fresh(node, seats)
