"""Have nodes let go of copies that nobody will go on from: those of ranks that are gone.

A rank that lives has its own copies dropped by its own agent. Of one that is gone nobody would; and a node
that keeps copies cannot know by itself which are of no use: whoever left another copy could have it believe
so. So the leader says it, once the generation that runs has its own snapshots wherever they are to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.restore import state_sources, vouching
from controlplane.core.restore.vouching import Trust

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def tend(m: ClusterState, job: Job) -> None:
    """With each release of a generation, until nothing is left over: have older generations' copies
    dropped."""
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
        or not _kept_anew(m, job, generation.number)
    ):
        return
    job.replicas.leftovers_at = job.snapshots.released
    found = _found(m, job, generation.number)
    job.replicas.leftovers = bool(found)
    for node, members in found.items():
        if m.up(node):
            m.emit(fx.Discard(node, job.name, members))


def _kept_anew(m: ClusterState, job: Job, number: int) -> bool:
    """Whether every copy that is wanted, and can be, is there, of this generation; of no shard there is
    none."""
    if job.replicas.replan or not all(job.replicas.partners.values()):
        return False
    readers = state_sources.shards(m, job).readers if job.replicas.partners else {}
    for word, names in job.replicas.partners.items():
        rank = readers.get(word)
        owner = job.seats[rank].member if rank is not None else ""
        for name in names:
            node = m.nodes.get(name)
            kept = node.copies_of(job.name) if node is not None else []
            own = [copy for copy in kept if (copy.member, copy.generation) == (owner, number)]
            if all(vouching.trust(job, copy, {}) is Trust.REFUTED for copy in own):
                return False
    return True


def _found(m: ClusterState, job: Job, number: int) -> dict[str, tuple[str, ...]]:
    """By node, the members of whom it keeps copies of older generations only, and who have no seat now."""
    found: dict[str, tuple[str, ...]] = {}
    for node in m.nodes.values():
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
