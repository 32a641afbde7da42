"""List every known copy of a job's state, and the rank that could read each of them.

Ranks of one shard id hold equal state. A "cut" is the way in which state is divided into shards; it changes
with the number of ranks. A script that has built nothing yet reports the id "all", whatever its rank held
before, so "all" never replaces a known id. "?RANK" is an unknown id that one rank alone holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.core.failures import numeric_anomalies
from controlplane.core.records.copies import Copy
from controlplane.core.records.model import NO_STEP, WHOLE_STATE, Tier
from controlplane.core.restore import vouching
from controlplane.core.restore.restore_point import EVERY, OTHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.core.records.model import CheckpointRecord, Generation, Placement
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

WHOLE_OR_SILENT = ("", WHOLE_STATE)  # shard ids that may be reported by a rank that has built nothing yet
FETCH_TRIES = 3
"""How often a copy is fetched from a replica holder before an older state is chosen."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Which shard each rank of the coming generation needs."""

    words: tuple[str, ...]  # shard id by rank
    readers: dict[str, int]  # by shard id, in rank order: the first rank that needs it
    here: dict[tuple[str, str], int]  # by (node, shard id): the first rank there that needs it
    recut: bool = False  # the state is cut for another number of ranks than in the newest generation

    @property
    def only(self) -> str:
        """The one shard id that all ranks need; "" when they need different ones."""
        return self.words[0] if len(self.readers) == 1 else ""


def shards(m: ClusterState, job: Job) -> Shards:
    """Find the shard that each seat needs: as its member reports it, or as its rank held it before."""
    recall(m, job)
    if recuts(job, len(job.seats) // job.spec.nproc_per_node):
        return _arranged(job, _recut(job), recut=True)
    known = [_word(job, member, rank) for rank, member in enumerate(job.seated())]
    words = dict.fromkeys(known)
    left = _left(m, job) if any(map(_silent, words)) else {}
    if all(map(_silent, words)) and not any(word not in WHOLE_OR_SILENT for word in left.values()):
        known = [WHOLE_STATE if word in WHOLE_OR_SILENT else word for word in known]
    else:
        known = [left.get(r) or f"?{r}" if _silent(word) else word for r, word in enumerate(known)]
    return _arranged(job, known)


def whole(m: ClusterState, job: Job, ranks: Sequence[int]) -> bool:
    """Whether these ranks of the present seats hold every shard of the state together."""
    words = shards(m, job).words
    return {words[rank] for rank in ranks} == set(words)


def _silent(word: str) -> bool:
    """Whether a shard id leaves open which part of the state a rank holds."""
    return word in WHOLE_OR_SILENT or word.startswith("?")


def _arranged(job: Job, known: list[str], recut: bool = False) -> Shards:
    readers: dict[str, int] = {}
    here: dict[tuple[str, str], int] = {}
    for seat, word in zip(job.seats, known, strict=True):
        readers.setdefault(word, seat.rank)
        here.setdefault((seat.node, word), seat.rank)
    return Shards(tuple(known), readers, here, recut)


def _former(job: Job) -> list[str]:
    """Return the shard ids that the ranks of the newest generation held; "" where unknown."""
    seats = job.generation.seats if job.generation else ()
    return [job.restore.shards.get(seat.rank, "") or _told(job, seat) for seat in seats]


def _words(job: Job) -> dict[str, None]:
    """Return the distinct shard ids of the newest generation; one for ten thousand replicated ranks."""
    return dict.fromkeys(_former(job))


def _told(job: Job, seat: Placement) -> str:
    """Return the shard id that the member of a seat reports in the present cut; "" when it reports none."""
    member = job.members.get(seat.member)
    since = max(1, job.generations.cut_at)
    status = member.status if member is not None and member.generation >= since else None
    return status.shard if status is not None and status.rank == seat.rank else ""


def recall(m: ClusterState, job: Job) -> None:
    """Learn missing shard ids from the dead and from replica holders, before these are lost as well."""
    generation = _of_shards(job)
    if generation is None or not any(map(_silent, _words(job))):
        return
    for rank, word in _left(m, job).items():
        if _silent(job.restore.shards.get(rank, "")) and not _silent(word) and rank < generation.world_size:
            job.restore.shards[rank] = word
    _as_elsewhere(job)


def _of_shards(job: Job) -> Generation | None:
    """Return the newest generation if its ranks may hold shards: it or an older one with them has formed."""
    generation = job.generation
    return generation if generation is not None and (generation.store or job.generations.cut_at) else None


def _as_elsewhere(job: Job) -> None:
    """Fill in missing shard ids where all replicas of the model were once seen to hold the same shards."""
    words = job.generations.cut_words
    former = _former(job) if words else []
    if not words or len(former) % len(words):
        return
    if any(not _silent(word) and word != words[rank % len(words)] for rank, word in enumerate(former)):
        job.generations.cut_words = ()  # the replicas differ by now
        return
    for rank, word in enumerate(former):
        if _silent(word):
            job.restore.shards[rank] = words[rank % len(words)]


def sharded(job: Job) -> bool:
    """Whether ranks hold different parts of the state."""
    return any(word not in WHOLE_OR_SILENT for word in _words(job))


def recuts(job: Job, nodes: int) -> bool:
    """Whether the state is in shards, and this number of nodes changes the number of its ranks."""
    generation = _of_shards(job)
    ranks = nodes * job.spec.nproc_per_node
    return generation is not None and ranks != generation.world_size and sharded(job)


def repeats(job: Job) -> tuple[str, ...]:
    """Return the shard ids of one replica of the model if all replicas were ever seen to hold the same: any
    number of replicas can be made of them. () when that was not seen, or the state is not in shards."""
    size = job.spec.nproc_per_node * job.spec.replica_nodes
    words = _former(job)
    known = all(word and not word.startswith("?") for word in dict.fromkeys(words))
    seen = len(words) >= 2 * size and known and words == words[:size] * (len(words) // size)
    if seen and words[0] != WHOLE_STATE:
        job.generations.cut_words = tuple(words[:size])
    return job.generations.cut_words


def torn(job: Job, nodes: int) -> bool:
    """Whether this number of nodes forces a reshard: only a checkpoint can give the state then."""
    return recuts(job, nodes) and not repeats(job)


def cut_at(job: Job, ranks: int, number: int) -> int:
    """Return the sharding epoch (`Generation.cut_at`) of the coming generation `number` with `ranks` ranks.
    Never 0 once one with shards has formed: the next leader must know of shards before a rank reports one."""
    if job.generation is None or not sharded(job):
        return job.generations.cut_at
    if ranks != job.generation.world_size and not repeats(job):
        return number
    return max(job.generations.cut_at, 1) if job.generation.store else job.generations.cut_at


def _recut(job: Job) -> list[str]:
    words = repeats(job)
    return [words[rank % len(words)] if words else f"?{rank}" for rank in range(len(job.seats))]


def relabel(job: Job, generation: Generation) -> None:
    """Set the ranks' shard ids for a generation of another size: known only where replicas hold the same."""
    words, ranks = repeats(job), range(generation.world_size)
    if words:
        job.restore.shards = {rank: words[rank % len(words)] for rank in ranks}
    else:
        job.restore.shards = {rank: f"?{rank}" for rank in ranks} if sharded(job) else {}
    job.generations.cut_at = generation.cut_at


def _left(m: ClusterState, job: Job) -> dict[int, str]:
    """Return the shard ids by rank that copies at other nodes, and all known members, show."""
    kept = [copy for node in m.nodes.values() for copy in node.copies_of(job.name)]
    left = {copy.rank: copy.shard for copy in kept if copy.generation >= job.generations.cut_at}
    for member in job.members.values():
        status = member.status
        if status is None or status.shard in WHOLE_OR_SILENT:
            continue
        if member.generation >= max(1, job.generations.cut_at):
            left[status.rank] = status.shard
    return left


def _word(job: Job, member: Member, rank: int) -> str:
    """Return a rank's shard id: reported from a group of this cut, else held before, else as reported."""
    status = member.status
    told = status.shard if status is not None and status.rank == rank else ""
    if told not in WHOLE_OR_SILENT and member.generation >= max(1, job.generations.cut_at):
        return told
    return job.restore.shards.get(rank, "") or told


def copies(m: ClusterState, job: Job, need: Shards, hoped: bool = False) -> list[Copy]:
    """Return every copy of the state that the coming generation could start from. `hoped`: also copies that
    may become available: at nodes whose stream broke, or where a fetch failed and may be tried again."""
    if need.recut and not job.generations.cut_words:
        return [*(copy for copy in _living(job, need) if copy.tier is Tier.FRESH), *_checkpoints(job, need)]
    found = [
        *_living(job, need),
        *_arenas(m, job, need, hoped),
        *_peers(m, job, need, hoped),
        *_checkpoints(job, need),
    ]
    if job.restore.failed_sources:
        found = [copy for copy in found if not (copy.node and not copy.arena and _barred(job, copy, hoped))]
    found = list(_not_beyond(_ended_by_all(job), found))
    return numeric_anomalies.trusted(job, found) if job.numbers.faults else found


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


def birth(job: Job, step: int, generation: int) -> int:
    """Return the origin of `generation`'s state at `step`: itself, or that of the state it started from."""
    line = job.generations.lines.get(generation)
    return line[1] if line is not None and line[0] == step else generation


def generation_met(job: Job) -> bool:
    """Whether the newest generation may have trained, and so have changed the state that the script built."""
    return job.generation is not None and bool(job.generation.store)


def _living(job: Job, need: Shards) -> Iterator[Copy]:
    met, told = generation_met(job), dict[tuple[int, int, str], None]()
    for member in job.seated():
        status, word = member.status, need.words[member.rank]
        if status is None or _of_another_cut(job, member, need, word):
            continue
        if status.held_step > NO_STEP:
            born = birth(job, status.held_step, _held_in(member))
            state = (status.held_step, born, word)
            if status.held_step == 0 or state not in told:  # one donor per state is enough, but at step 0
                yield Copy(Tier.DONOR, status.held_step, member.rank, word, born=born)
            told[state] = None
        elif member.generation == 0 or not met:
            yield Copy(Tier.FRESH, 0, member.rank, word)


def _of_another_cut(job: Job, member: Member, need: Shards, word: str) -> bool:
    """Whether a member holds a shard of a cut that is over."""
    status = member.status
    if status is None or status.held_step <= NO_STEP or member.generation == 0:
        return False
    return _held_in(member) < job.generations.cut_at or (need.recut and _held_shard(member) != word)


def _held_shard(member: Member) -> str:
    """Return the shard id of a member's state; a member ordered into another generation reports none."""
    told = member.status.shard if member.status is not None else ""
    generation, shard = member.shard_before
    return told or (shard if generation == _held_in(member) else "")


def _held_in(member: Member) -> int:
    """Return the generation of a member's state. The newest one that it was sent may never have formed."""
    told = member.status.held_generation if member.status is not None else 0
    return told or member.generation


def _arenas(m: ClusterState, job: Job, need: Shards, hoped: bool) -> Iterator[Copy]:
    alike: dict[tuple[int, int, str], tuple[int, str, int]] = {}
    seen = 0
    for member in job.members.values():
        node = m.nodes.get(member.node)
        if member.status is None or node is None or not _gives(node, hoped):
            continue
        word = _word(job, member, member.status.rank) or need.only
        rank = member.rank if job.seating.holds(member) else need.here.get((member.node, word))
        if rank is None or not node.up:
            yield from _stranded(job, node, member, word, need)
        elif need.words[rank] == word:
            for _, step, born in _kept(job, member):
                state, name, seen = (step, born, word), member.name, seen + 1
                if name in job.restore.answered:
                    yield _slot(job, member, Copy(Tier.MEMORY, step, rank, word, name, born=born))
                elif state not in alike or (rank, name) < alike[state]:
                    alike[state] = rank, name, seen
    # One copy per state is enough, the nearest. The states of one member stay in their order.
    for (step, born, word), (rank, name, _) in sorted(alike.items(), key=lambda found: found[1][2]):
        yield Copy(Tier.MEMORY, step, rank, word, name, born=born)


def _gives(node: Node, hoped: bool) -> bool:
    return node.up or (hoped and node.state == "suspect")


def _kept(job: Job, member: Member) -> Iterator[tuple[int, int, int]]:
    """Yield the usable snapshots in a member's slots: (generation, step, origin generation), ascending."""
    for generation, step in member.kept:
        if (member.name, step) not in job.restore.failed_sources and generation >= job.generations.cut_at:
            yield generation, step, birth(job, step, generation)


def _stranded(job: Job, node: Node, member: Member, word: str, need: Shards) -> Iterator[Copy]:
    """Yield the snapshots of a member on whose node no rank can read them: they are fetched from there."""
    rank = need.readers.get(word)
    if rank is None or not node.peer:
        return
    for generation, step, born in _kept(job, member):
        digest = vouching.said(job, member.name, generation, step)
        yield Copy(
            Tier.PEER, step, rank, word, member.name, born=born, node=node.name, generation=generation,
            digest=digest,
        )  # fmt: skip


def _slot(job: Job, member: Member, copy: Copy) -> Copy:
    """Return the copy in a READY slot; a slot that our own order filled has the tier it was filled from."""
    answer = job.restore.answered.get(member.name)
    if answer is None or answer.step != copy.step:
        return copy
    return replace(
        copy, tier=answer.tier, member=answer.source, checkpoint=answer.checkpoint, node=answer.keeper,
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


def _peers(m: ClusterState, job: Job, need: Shards, hoped: bool) -> Iterator[Copy]:
    holders = vouching.holders(m, job)
    for node in m.nodes.values():
        if not (_gives(node, hoped) and node.peer):
            continue
        for kept in node.copies_of(job.name):
            word = kept.shard or need.only
            rank = _reader(job, node, word, need)
            rests = vouching.rests(job, kept, holders)
            if rank is None or kept.generation < job.generations.cut_at or rests is None:
                continue
            born = birth(job, kept.step, kept.generation)
            yield Copy(
                Tier.PEER, kept.step, rank, word, kept.member, born=born, node=node.name,
                generation=kept.generation, **rests,
            )  # fmt: skip


def _reader(job: Job, node: Node, word: str, need: Shards) -> int | None:
    """Return the rank that fetches a copy: one on the holder's own node, else the first that needs it."""
    beside = need.here.get((node.name, word))
    return need.readers.get(word) if beside is None else beside


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
    born = birth(job, record.step, record.generation)
    digest = record.manifest_digest
    return Copy(Tier.CHECKPOINT, record.step, 0, shard, checkpoint=record.id, born=born, digest=digest)
