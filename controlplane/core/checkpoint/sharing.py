"""Divide the writing of a checkpoint: each shard in shares of useful size, each share from another node."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records.model import WHOLE_STATE
from controlplane.core.state.saving import Holder, Writer

if TYPE_CHECKING:
    from collections.abc import Collection

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member
    from controlplane.core.state.saving import Saving

SHARE_BYTES = 16 << 20
"""Least bytes of a share: for less, one more writer does not pay."""

WRITERS_MAX = 64
"""Most writers of one shard: with more, the shares would be unbalanced."""


def holders(job: Job) -> tuple[Holder, ...]:
    """Return each seat's rank with its shard id. A rank that reports none is taken to hold all the state."""
    return tuple(
        Holder((mb.status.shard if mb.status else "") or WHOLE_STATE, mb.rank, mb.name, mb.node)
        for mb in job.seated()
    )


def writers(state: ClusterState, job: Job, held: tuple[Holder, ...]) -> tuple[Writer, ...]:
    """Choose the writers: for each shard at most one per node, no more than there are useful shares.

    Each next shard begins with the next of its nodes, so that small shards are not all written by one."""
    by_shard: dict[str, list[Holder]] = {}
    for holder in held:
        by_shard.setdefault(holder.shard, []).append(holder)
    found: list[Writer] = []
    for index, (shard, all_of_it) in enumerate(by_shard.items()):
        seats = _one_per_node(state, job, all_of_it)
        size = max((_bytes(job.members[each.member]) for each in all_of_it), default=0)
        shares = min(len(seats), WRITERS_MAX, max(1, size // SHARE_BYTES))
        begin = index % len(seats)
        seats = [*seats[begin:], *seats[:begin]][:shares]
        found += [
            Writer(shard, share, shares, seat.rank, seat.member, seat.node)
            for share, seat in enumerate(seats)
        ]
    return tuple(found)


def _one_per_node(state: ClusterState, job: Job, all_of_it: list[Holder]) -> list[Holder]:
    """Return the first living holder of each connected node; of every node when none is connected now."""
    first: dict[str, Holder] = {}
    for holder in all_of_it:
        if not job.members[holder.member].dead:
            first.setdefault(holder.node, holder)
    reached = [holder for node, holder in first.items() if state.up(node)]
    return reached or list(first.values()) or all_of_it[:1]


def _bytes(member: Member) -> int:
    return member.status.state_bytes if member.status else 0


def gone(state: ClusterState, job: Job, writer: Writer) -> str:
    """Return why this writer cannot deliver its part any more; "" when it may."""
    node = state.nodes.get(writer.node)
    if node is None or node.state == "lost":
        return f"node {writer.node} is lost"
    member = job.members.get(writer.member)
    if member is None or (member.dead and member.status is None):
        return f"the snapshot of {writer.member} is gone with its agent"
    return ""


def instead(state: ClusterState, job: Job, saving: Saving, writer: Writer) -> Writer | None:
    """Return another holder of the same shard that still has the step, to write instead; None: there is none.
    A member that was asked before is not asked again."""
    tried = (*writer.tried, writer.member)
    for holder in saving.holders:
        if holder.shard != writer.shard or holder.member in tried or not state.up(holder.node):
            continue
        if _still_holds(job, holder, saving):
            return dataclasses.replace(
                writer, rank=holder.rank, member=holder.member, node=holder.node, tried=tried
            )
    return None


def _still_holds(job: Job, holder: Holder, saving: Saving) -> bool:
    """Whether a member's arena still has the snapshot, as far as is known; its process may be dead."""
    member = job.members.get(holder.member)
    if member is None or member.status is None:
        return False
    status = member.status
    if status.snapshot_generation == saving.generation:
        if saving.step in (status.snapshot_step, status.snapshot_before):
            return True
    current = job.generation is not None and job.generation.number == saving.generation
    return current and saving.step in job.snapshots.held.get(holder.rank, ())


def chosen_node(state: ClusterState, job: Job, last: bool = False, without: Collection[str] = ()) -> str:
    """Return a connected node: the job's first (or `last`), else any other; "" when there is none. `without`:
    none of these."""
    seats = [name for name in job.seat_nodes() if state.up(name) and name not in without]
    others = [name for name in state.nodes if state.up(name) and name not in without]
    return next(iter((seats[::-1] if last else seats) or others), "")
