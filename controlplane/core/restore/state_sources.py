"""List every known copy of a job's state, and the rank that could read each of them.

The shard id of each rank, and the sharding epoch, come from `sharding.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from controlplane.core.failures import numeric_anomalies, suspect_states
from controlplane.core.records.copies import Copy
from controlplane.core.records.model import NO_STEP, WHOLE_STATE, Tier
from controlplane.core.restore import keepers, sharding, vouching
from controlplane.core.restore.restore_point import EVERY, OTHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.restore.sharding import Shards
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

FETCH_TRIES = 3
"""How often a copy is fetched from a replica holder before an older state is chosen."""


def copies(state: ClusterState, job: Job, need: Shards, hoped: bool = False) -> list[Copy]:
    """Return every copy of the state that the coming generation could start from. `hoped`: also copies that
    may become available: at nodes whose stream broke, or where a fetch failed and may be tried again."""
    if need.resharded and not job.generations.replica_shard_ids:
        return [*(copy for copy in _living(job, need) if copy.tier is Tier.FRESH), *_checkpoints(job, need)]
    found = [
        *_living(job, need),
        *_arenas(state, job, need, hoped),
        *_peers(state, job, need, hoped),
        *_checkpoints(job, need),
    ]
    if job.restore.failed_sources:
        found = [copy for copy in found if not (copy.node and not copy.arena and _barred(job, copy, hoped))]
    found = list(_not_beyond(_ended_by_all(job), found))
    found = numeric_anomalies.trusted(job, found) if job.numbers.faults else found
    return [_judged(job, copy) for copy in found] if job.numbers.suspect_states else found


def _judged(job: Job, copy: Copy) -> Copy:
    """Return the copy with the word whether its state is suspect."""
    suspect = suspect_states.suspected(job, copy.step, copy.origin)
    return replace(copy, suspect=True) if suspect else copy


_OF_ALL = (Tier.CHECKPOINT, Tier.FRESH)
"""Tiers whose copies were made after every rank had ended the step, or before any rank began one."""


def _ended_by_all(job: Job) -> int | None:
    """Return how many steps every rank has ended; None: no limit. A rank interrupted after its optimizer step
    has not ended that step: started from a later state, it would never run the rest of the step's body. Ranks
    that were not in the newest group set no limit: the others have gone on without them."""
    there = (member for member in job.seated() if member.generation >= job.generations.formed)
    ended = (member.status.ended_step for member in there if member.status is not None)
    return min((step for step in ended if step is not None), default=None)


def _not_beyond(limit: int | None, found: Sequence[Copy]) -> Iterator[Copy]:
    """Keep the copies that are not newer than the steps which every rank has ended (`_ended_by_all`)."""
    return (copy for copy in found if limit is None or copy.step <= limit or copy.tier in _OF_ALL)


def origin_of(job: Job, step: int, generation: int) -> int:
    """Return the origin of `generation`'s state at `step`: itself, or that of the state it started from."""
    line = job.generations.lines.get(generation)
    return line[1] if line is not None and line[0] == step else generation


def generation_met(job: Job) -> bool:
    """Whether the newest generation may have trained, and so have changed the state that the script built."""
    return job.generation is not None and bool(job.generation.store)


def _living(job: Job, need: Shards) -> Iterator[Copy]:
    met, listed = generation_met(job), dict[tuple[int, int, str], None]()
    for member in job.seated():
        status, shard_id = member.status, need.shard_ids[member.rank]
        if status is None or _of_another_epoch(job, member, need, shard_id):
            continue
        if status.held_step > NO_STEP:
            origin = origin_of(job, status.held_step, _held_in(member))
            state = (status.held_step, origin, shard_id)
            if status.held_step == 0 or state not in listed:  # one donor per state is enough, but at step 0
                yield Copy(Tier.DONOR, status.held_step, member.rank, shard_id, origin=origin)
            listed[state] = None
        elif member.generation == 0 or not met:
            yield Copy(Tier.FRESH, 0, member.rank, shard_id)


def _of_another_epoch(job: Job, member: Member, need: Shards, shard_id: str) -> bool:
    """Whether a member holds a shard of a sharding epoch that is over."""
    status = member.status
    if status is None or status.held_step <= NO_STEP or member.generation == 0:
        return False
    return _held_in(member) < job.generations.sharding_epoch or (
        need.resharded and _held_shard(member) != shard_id
    )


def _held_shard(member: Member) -> str:
    """Return the shard id of a member's state; a member ordered into another generation reports none."""
    reported = member.status.shard if member.status is not None else ""
    generation, shard = member.shard_before
    return reported or (shard if generation == _held_in(member) else "")


def _held_in(member: Member) -> int:
    """Return the generation of a member's state. The newest one that it was sent may never have formed."""
    reported = member.status.held_generation if member.status is not None else 0
    return reported or member.generation


def _arenas(state: ClusterState, job: Job, need: Shards, hoped: bool) -> Iterator[Copy]:
    alike: dict[tuple[int, int, str], tuple[int, str, int]] = {}
    seen = 0
    for member in job.members.values():
        node = state.nodes.get(member.node)
        if member.status is None or node is None or not _gives(node, hoped):
            continue
        shard_id = sharding.held(job, member, member.status.rank) or need.only
        rank = member.rank if job.seating.holds(member) else need.here.get((member.node, shard_id))
        if rank is None or not node.up:
            yield from _stranded(job, node, member, shard_id, need)
        elif need.shard_ids[rank] == shard_id:
            for _, step, origin in _kept(job, member):
                held, name, seen = (step, origin, shard_id), member.name, seen + 1
                if name in job.restore.answered:
                    yield _slot(job, member, Copy(Tier.MEMORY, step, rank, shard_id, name, origin=origin))
                elif held not in alike or (rank, name) < alike[held]:
                    alike[held] = rank, name, seen
    # One copy per state is enough, the nearest. The states of one member stay in their order.
    for (step, origin, shard_id), (rank, name, _) in sorted(alike.items(), key=lambda found: found[1][2]):
        yield Copy(Tier.MEMORY, step, rank, shard_id, name, origin=origin)


def _gives(node: Node, hoped: bool) -> bool:
    return node.up or (hoped and node.state == "suspect")


def _kept(job: Job, member: Member) -> Iterator[tuple[int, int, int]]:
    """Yield the usable snapshots in a member's slots: (generation, step, origin generation), ascending."""
    for generation, step in member.kept:
        if (
            member.name,
            step,
        ) not in job.restore.failed_sources and generation >= job.generations.sharding_epoch:
            yield generation, step, origin_of(job, step, generation)


def _stranded(job: Job, node: Node, member: Member, shard_id: str, need: Shards) -> Iterator[Copy]:
    """Yield the snapshots of a member on whose node no rank can read them: they are fetched from there."""
    rank = need.readers.get(shard_id)
    if rank is None or not node.peer:
        return
    for generation, step, origin in _kept(job, member):
        digest = vouching.digest_of(job, member.name, generation, step)
        yield Copy(
            Tier.PEER, step, rank, shard_id, member.name, origin=origin, node=node.name,
            generation=generation, digest=digest,
        )  # fmt: skip


def _slot(job: Job, member: Member, copy: Copy) -> Copy:
    """Return the copy in a READY slot; a slot that our own order filled has the tier it was filled from."""
    answer = job.restore.answered.get(member.name)
    if answer is None or answer.step != copy.step:
        return copy
    return replace(
        copy, tier=answer.tier, member=answer.source, checkpoint=answer.checkpoint, node=answer.holder,
        arena=member.name, doubted=answer.doubted,
    )  # fmt: skip


def copy_key(member: str, node: str, step: int) -> tuple[str, int]:
    """Return the key in `Restore.failed_sources` of the copy of a member's snapshot that a node keeps."""
    return f"{member}@{node}", step


def _barred(job: Job, copy: Copy, hoped: bool) -> bool:
    """Whether a copy failed and is excluded; with `hoped`, not if its fetch may be tried again."""
    key = copy_key(copy.member, copy.node, copy.step)
    again = hoped and 0 < job.restore.fetch_tries.get(key, 0) < FETCH_TRIES
    return key in job.restore.failed_sources and not again


def _peers(state: ClusterState, job: Job, need: Shards, hoped: bool) -> Iterator[Copy]:
    holders = vouching.holders(state, job)
    for node in keepers.of(state, job.name):
        if not (_gives(node, hoped) and node.peer):
            continue
        for kept in node.copies_of(job.name):
            shard_id = kept.shard or need.only
            rank = _reader(job, node, shard_id, need)
            rests = vouching.rests(job, kept, holders)
            if rank is None or kept.generation < job.generations.sharding_epoch or rests is None:
                continue
            origin = origin_of(job, kept.step, kept.generation)
            yield Copy(
                Tier.PEER, kept.step, rank, shard_id, kept.member, origin=origin, node=node.name,
                generation=kept.generation, **rests,
            )  # fmt: skip


def _reader(job: Job, node: Node, shard_id: str, need: Shards) -> int | None:
    """Return the rank that fetches a copy: one on the holder's own node, else the first that needs it."""
    beside = need.here.get((node.name, shard_id))
    return need.readers.get(shard_id) if beside is None else beside


def checkpoint_shard(record: CheckpointRecord) -> str:
    """Return the shard id of a checkpoint that has only one."""
    return record.shards[0] if record.shards else WHOLE_STATE


def _checkpoints(job: Job, need: Shards) -> Iterator[Copy]:
    here = tuple(sorted(need.readers))
    for record in job.checkpoints.records.values():
        if record.published and not record.bad:
            shard = EVERY if (record.shards or (WHOLE_STATE,)) == here else OTHER
            yield _checkpoint(job, record, shard)


def _checkpoint(job: Job, record: CheckpointRecord, shard: str) -> Copy:
    origin = origin_of(job, record.step, record.generation)
    digest = record.manifest_digest
    return Copy(
        Tier.CHECKPOINT, record.step, 0, shard, checkpoint=record.id, origin=origin, digest=digest,
        suspect=bool(record.suspect),
    )  # fmt: skip
