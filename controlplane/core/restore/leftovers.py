"""Order nodes to drop the copies of snapshots whose ranks are gone.

The agent of a living rank itself has the old copies of that rank's snapshots dropped. For a rank that is gone
no agent does so. A replica holder must not decide by itself which copies are of no use: it could only go by
the other copies that were left with it, and a forged one could make it drop good ones. So the leader orders
it, and only when the running generation has its own copies in all the places where they are to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.restore import keepers, sharding, vouching
from controlplane.core.restore.vouching import Trust

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def reconcile(state: ClusterState, job: Job) -> None:
    """Order older generations' copies dropped; runs at each released snapshot until none is left over."""
    if (
        not job.replicas.leftovers
        or job.phase is not JobPhase.RUNNING
        or job.snapshots.released == job.replicas.leftovers_at
    ):
        return
    generation = job.generation
    if (
        generation is None
        or job.snapshots.released <= generation.resume.step
        or not _kept_anew(state, job, generation.number)
    ):
        return
    job.replicas.leftovers_at = job.snapshots.released
    found = _found(state, job, generation.number)
    job.replicas.leftovers = bool(found)
    for node, members in found.items():
        if state.up(node):
            state.emit(fx.Discard(node, job.name, members))


def _kept_anew(state: ClusterState, job: Job, number: int) -> bool:
    """Whether every planned holder keeps a copy of this generation that is not refuted.

    False while some shard has no holder at all, or the plan is to be made anew."""
    if job.replicas.replan or not all(job.replicas.holders.values()):
        return False
    readers = sharding.needed(state, job).readers if job.replicas.holders else {}
    for word, names in job.replicas.holders.items():
        rank = readers.get(word)
        owner = job.seats[rank].member if rank is not None else ""
        for name in names:
            node = state.nodes.get(name)
            kept = node.copies_of(job.name) if node is not None else []
            own = [copy for copy in kept if (copy.member, copy.generation) == (owner, number)]
            if all(vouching.trust(job, copy, {}) is Trust.REFUTED for copy in own):
                return False
    return True


def _found(state: ClusterState, job: Job, number: int) -> dict[str, tuple[str, ...]]:
    """Find, by node, the members without a seat of whom the node has copies of older generations only."""
    found: dict[str, tuple[str, ...]] = {}
    for node in keepers.of(state, job.name):
        newest: dict[str, int] = {}
        for copy in node.copies_of(job.name):
            newest[copy.member] = max(copy.generation, newest.get(copy.member, 0))
        over = tuple(name for name, last in newest.items() if last < number and not _sits(job, name))
        if over:
            found[node.name] = over
    return found


def _sits(job: Job, name: str) -> bool:
    member = job.members.get(name)
    return member is not None and job.seating.holds(member)
