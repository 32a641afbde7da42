"""Find the shard id of each rank: which part of the state it holds, or needs.

Ranks of one shard id hold equal state. A sharding epoch is the time in which the state is divided into shards
in one way; it is named by the generation that began it, and ends when the number of ranks changes. A script
that has built nothing yet reports the id "all", whatever its rank held before, so "all" never replaces a
known id. "?RANK" is an unknown id that one rank alone holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.model import WHOLE_STATE
from controlplane.core.restore import keepers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.model import Generation, Placement
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

WHOLE_OR_UNKNOWN = ("", WHOLE_STATE)  # shard ids that may be reported by a rank that has built nothing yet


@dataclass(frozen=True, slots=True)
class Shards:
    """Which shard each rank of the coming generation needs."""

    shard_ids: tuple[str, ...]  # shard id by rank
    readers: dict[str, int]  # by shard id, in rank order: the first rank that needs it
    here: dict[tuple[str, str], int]  # by (node, shard id): the first rank there that needs it
    resharded: bool = False  # for another number of ranks than in the newest generation

    @property
    def only(self) -> str:
        """The one shard id that all ranks need; "" when they need different ones."""
        return self.shard_ids[0] if len(self.readers) == 1 else ""


def needed(state: ClusterState, job: Job) -> Shards:
    """Find the shard that each seat needs: as its member reports it, or as its rank held it before."""
    recall(state, job)
    if reshards(job, len(job.seats) // job.spec.nproc_per_node):
        return _arranged(job, _resharded_ids(job), resharded=True)
    known = [held(job, member, rank) for rank, member in enumerate(job.seated())]
    shard_ids = dict.fromkeys(known)
    left = _left(state, job) if any(map(_unknown, shard_ids)) else {}
    if all(map(_unknown, shard_ids)) and not any(
        shard_id not in WHOLE_OR_UNKNOWN for shard_id in left.values()
    ):
        known = [WHOLE_STATE if shard_id in WHOLE_OR_UNKNOWN else shard_id for shard_id in known]
    else:
        known = [
            left.get(r) or f"?{r}" if _unknown(shard_id) else shard_id for r, shard_id in enumerate(known)
        ]
    return _arranged(job, known)


def whole(state: ClusterState, job: Job, ranks: Sequence[int]) -> bool:
    """Whether these ranks of the present seats hold every shard of the state together."""
    shard_ids = needed(state, job).shard_ids
    return {shard_ids[rank] for rank in ranks} == set(shard_ids)


def _unknown(shard_id: str) -> bool:
    """Whether a shard id leaves open which part of the state a rank holds."""
    return shard_id in WHOLE_OR_UNKNOWN or shard_id.startswith("?")


def _arranged(job: Job, known: list[str], resharded: bool = False) -> Shards:
    readers: dict[str, int] = {}
    here: dict[tuple[str, str], int] = {}
    for seat, shard_id in zip(job.seats, known, strict=True):
        readers.setdefault(shard_id, seat.rank)
        here.setdefault((seat.node, shard_id), seat.rank)
    return Shards(tuple(known), readers, here, resharded)


def _former(job: Job) -> list[str]:
    """Return the shard ids that the ranks of the newest generation held; "" where unknown."""
    seats = job.generation.seats if job.generation else ()
    return [job.restore.shards.get(seat.rank, "") or _reported(job, seat) for seat in seats]


def _shard_ids(job: Job) -> dict[str, None]:
    """Return the distinct shard ids of the newest generation; one for ten thousand replicated ranks."""
    return dict.fromkeys(_former(job))


def _reported(job: Job, seat: Placement) -> str:
    """Return the shard id that a seat's member reports in this sharding epoch; "" when it reports none."""
    member = job.members.get(seat.member)
    since = max(1, job.generations.sharding_epoch)
    status = member.status if member is not None and member.generation >= since else None
    return status.shard if status is not None and status.rank == seat.rank else ""


def recall(state: ClusterState, job: Job) -> None:
    """Learn missing shard ids from the dead and from replica holders, before these are lost as well."""
    generation = _of_shards(job)
    if generation is None or not any(map(_unknown, _shard_ids(job))):
        return
    for rank, shard_id in _left(state, job).items():
        if (
            _unknown(job.restore.shards.get(rank, ""))
            and not _unknown(shard_id)
            and rank < generation.world_size
        ):
            job.restore.shards[rank] = shard_id
    _as_elsewhere(job)


def _of_shards(job: Job) -> Generation | None:
    """Return the newest generation if its ranks may hold shards: it or an older one with them has formed."""
    generation = job.generation
    return (
        generation
        if generation is not None and (generation.store or job.generations.sharding_epoch)
        else None
    )


def _as_elsewhere(job: Job) -> None:
    """Fill in missing shard ids where all replicas of the model were once seen to hold the same shards."""
    shard_ids = job.generations.replica_shard_ids
    former = _former(job) if shard_ids else []
    if not shard_ids or len(former) % len(shard_ids):
        return
    if any(
        not _unknown(shard_id) and shard_id != shard_ids[rank % len(shard_ids)]
        for rank, shard_id in enumerate(former)
    ):
        job.generations.replica_shard_ids = ()  # the replicas differ by now
        return
    for rank, shard_id in enumerate(former):
        if _unknown(shard_id):
            job.restore.shards[rank] = shard_ids[rank % len(shard_ids)]


def sharded(job: Job) -> bool:
    """Whether ranks hold different parts of the state."""
    return any(shard_id not in WHOLE_OR_UNKNOWN for shard_id in _shard_ids(job))


def reshards(job: Job, nodes: int) -> bool:
    """Whether the state is in shards, and this number of nodes changes the number of its ranks."""
    generation = _of_shards(job)
    ranks = nodes * job.spec.nproc_per_node
    return generation is not None and ranks != generation.world_size and sharded(job)


def repeats(job: Job) -> tuple[str, ...]:
    """Return the shard ids of one replica of the model if all replicas were ever seen to hold the same: any
    number of replicas can be made of them. () when that was not seen, or the state is not in shards."""
    size = job.spec.nproc_per_node * job.spec.replica_nodes
    shard_ids = _former(job)
    known = all(shard_id and not shard_id.startswith("?") for shard_id in dict.fromkeys(shard_ids))
    seen = len(shard_ids) >= 2 * size and known and shard_ids == shard_ids[:size] * (len(shard_ids) // size)
    if seen and shard_ids[0] != WHOLE_STATE:
        job.generations.replica_shard_ids = tuple(shard_ids[:size])
    return job.generations.replica_shard_ids


def forces_reshard(job: Job, nodes: int) -> bool:
    """Whether this number of nodes forces a reshard: only a checkpoint can give the state then."""
    return reshards(job, nodes) and not repeats(job)


def epoch(job: Job, ranks: int, number: int) -> int:
    """Return the sharding epoch (`Generation.cut_at`) of the coming generation `number` with `ranks` ranks.
    Never 0 once one with shards has formed: the next leader must know of shards before a rank reports one."""
    if job.generation is None or not sharded(job):
        return job.generations.sharding_epoch
    if ranks != job.generation.world_size and not repeats(job):
        return number
    return max(job.generations.sharding_epoch, 1) if job.generation.store else job.generations.sharding_epoch


def _resharded_ids(job: Job) -> list[str]:
    shard_ids = repeats(job)
    return [shard_ids[rank % len(shard_ids)] if shard_ids else f"?{rank}" for rank in range(len(job.seats))]


def relabel(job: Job, generation: Generation) -> None:
    """Set the ranks' shard ids for a generation of another size: known only where replicas hold the same."""
    shard_ids, ranks = repeats(job), range(generation.world_size)
    if shard_ids:
        job.restore.shards = {rank: shard_ids[rank % len(shard_ids)] for rank in ranks}
    else:
        job.restore.shards = {rank: f"?{rank}" for rank in ranks} if sharded(job) else {}
    job.generations.sharding_epoch = generation.cut_at


def _left(state: ClusterState, job: Job) -> dict[int, str]:
    """Return the shard ids by rank that copies at other nodes, and all known members, show."""
    kept = [copy for node in keepers.of(state, job.name) for copy in node.copies_of(job.name)]
    left = {copy.rank: copy.shard for copy in kept if copy.generation >= job.generations.sharding_epoch}
    for member in job.members.values():
        status = member.status
        if status is None or status.shard in WHOLE_OR_UNKNOWN:
            continue
        if member.generation >= max(1, job.generations.sharding_epoch):
            left[status.rank] = status.shard
    return left


def held(job: Job, member: Member, rank: int) -> str:
    """Return a rank's shard id: reported in this sharding epoch, else held before, else as reported."""
    status = member.status
    reported = status.shard if status is not None and status.rank == rank else ""
    if reported not in WHOLE_OR_UNKNOWN and member.generation >= max(1, job.generations.sharding_epoch):
        return reported
    return job.restore.shards.get(rank, "") or reported
