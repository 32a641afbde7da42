"""What copies of a job's state the book knows of, and who could read each of them."""

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


WHOLE_OR_SILENT = ("", WHOLE_STATE)

FETCH_TRIES = 3
"""Times that a copy at a peer is asked for before an older state is chosen."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Which shard each rank of the coming generation needs."""

    words: tuple[str, ...]  # by rank
    readers: dict[str, int]  # by shard, in rank order: the first rank that needs it
    here: dict[tuple[str, str], int]  # (node, shard): the first rank there that needs it
    recut: bool = False  # the layout is another than that in which the ranks told their words

    @property
    def only(self) -> str:
        """The shard that all ranks hold; "" when they hold different ones."""
        return self.words[0] if len(self.readers) == 1 else ""


def shards(m: ClusterState, job: Job) -> Shards:
    """The shard of every seat: as its member says, or as its rank held it in the generation before."""
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
    """Whether these ranks of the present seats hold every shard of the state."""
    words = shards(m, job).words
    return {words[rank] for rank in ranks} == set(words)


def _silent(word: str) -> bool:
    """Whether it does not tell which part of the state a rank holds."""
    return word in WHOLE_OR_SILENT or word.startswith("?")


def _arranged(job: Job, known: list[str], recut: bool = False) -> Shards:
    readers: dict[str, int] = {}
    here: dict[tuple[str, str], int] = {}
    for seat, word in zip(job.seats, known, strict=True):
        readers.setdefault(word, seat.rank)
        here.setdefault((seat.node, word), seat.rank)
    return Shards(tuple(known), readers, here, recut)


def _former(job: Job) -> list[str]:
    """What the ranks of the newest generation held, as far as is known."""
    seats = job.generation.seats if job.generation else ()
    return [job.restore.shards.get(seat.rank, "") or _told(job, seat) for seat in seats]


def _words(job: Job) -> dict[str, None]:
    """The different ones among them: where the state is replicated, one for all of ten thousand nodes."""
    return dict.fromkeys(_former(job))


def _told(job: Job, seat: Placement) -> str:
    """What the member of a seat says that it holds."""
    member = job.members.get(seat.member)
    since = max(1, job.generations.cut_at)
    status = member.status if member is not None and member.generation >= since else None
    return status.shard if status is not None and status.rank == seat.rank else ""


def recall(m: ClusterState, job: Job) -> None:
    """Take from the dead and from partners what the seats do not tell: it may be gone with the next."""
    generation = _of_shards(job)
    if generation is None or not any(map(_silent, _words(job))):
        return
    for rank, word in _left(m, job).items():
        if _silent(job.restore.shards.get(rank, "")) and not _silent(word) and rank < generation.world_size:
            job.restore.shards[rank] = word
    _as_elsewhere(job)


def _of_shards(job: Job) -> Generation | None:
    """The newest generation, when its ranks may hold shards: it has met, or an older one with shards has."""
    generation = job.generation
    return generation if generation is not None and (generation.store or job.generations.cut_at) else None


def _as_elsewhere(job: Job) -> None:
    """Replicas that were once seen to hold the same shards tell what their unknown ranks held."""
    words = job.generations.cut_words
    former = _former(job) if words else []
    if not words or len(former) % len(words):
        return
    if any(not _silent(word) and word != words[rank % len(words)] for rank, word in enumerate(former)):
        job.generations.cut_words = ()  # the script has changed its ways
        return
    for rank, word in enumerate(former):
        if _silent(word):
            job.restore.shards[rank] = words[rank % len(words)]


def sharded(job: Job) -> bool:
    """Whether ranks hold different parts of the state."""
    return any(word not in WHOLE_OR_SILENT for word in _words(job))


def recuts(job: Job, nodes: int) -> bool:
    """Whether so many nodes are another layout for state in shards than the newest generation's."""
    generation = _of_shards(job)
    ranks = nodes * job.spec.nproc_per_node
    return generation is not None and ranks != generation.world_size and sharded(job)


def repeats(job: Job) -> tuple[str, ...]:
    """The shards of one replica, when each replica was seen to hold the same: then any number of replicas
    is made of them. () when the state is cut over all ranks."""
    size = job.spec.nproc_per_node * job.spec.replica_nodes
    words = _former(job)
    known = all(word and not word.startswith("?") for word in dict.fromkeys(words))
    seen = len(words) >= 2 * size and known and words == words[:size] * (len(words) // size)
    if seen and words[0] != WHOLE_STATE:
        job.generations.cut_words = tuple(words[:size])
    return job.generations.cut_words


def torn(job: Job, nodes: int) -> bool:
    """Whether state in shards cannot go on with so many nodes but from a checkpoint, cut anew."""
    return recuts(job, nodes) and not repeats(job)


def cut_at(job: Job, ranks: int, number: int) -> int:
    """Since which generation state is cut as it is in the one of this number, with so many ranks. Never 0
    once shards have met: the next leader has to know that before a rank tells it."""
    if job.generation is None or not sharded(job):
        return job.generations.cut_at
    if ranks != job.generation.world_size and not repeats(job):
        return number
    return max(job.generations.cut_at, 1) if job.generation.store else job.generations.cut_at


def _recut(job: Job) -> list[str]:
    words = repeats(job)
    return [words[rank % len(words)] if words else f"?{rank}" for rank in range(len(job.seats))]


def relabel(job: Job, generation: Generation) -> None:
    """Another number of ranks is in etcd: what they hold is known only where replicas repeat."""
    words, ranks = repeats(job), range(generation.world_size)
    if words:
        job.restore.shards = {rank: words[rank % len(words)] for rank in ranks}
    else:
        job.restore.shards = {rank: f"?{rank}" for rank in ranks} if sharded(job) else {}
    job.generations.cut_at = generation.cut_at


def _left(m: ClusterState, job: Job) -> dict[int, str]:
    """What ranks held as far as copies at peers, and members that are gone, tell."""
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
    """The shard that a rank needs, as far as it is known. A script that has built none of its state yet
    says "all", whatever its rank held before: where others hold shards, that says nothing."""
    status = member.status
    told = status.shard if status is not None and status.rank == rank else ""
    if told not in WHOLE_OR_SILENT and member.generation >= max(1, job.generations.cut_at):
        return told
    return job.restore.shards.get(rank, "") or told


def copies(m: ClusterState, job: Job, need: Shards, hoped: bool = False) -> list[Copy]:
    """Every copy of the state that a coming generation could start from. `hoped`: also those that may be had
    yet, at nodes whose stream broke, or that could not be fetched at the first try."""
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
"""Copies that were made when every rank had ended the step, or before any had begun one."""


def _ended_by_all(job: Job) -> int | None:
    """So many steps have ended on every rank that lives; None: nobody sets a limit. A rank that is broken in
    a step says that it has not ended it: what the script does behind the optimizer would never run there. One
    that was left out of the newest group sets none: the others have gone on without it."""
    there = (member for member in job.seated() if member.generation >= job.generations.formed)
    ended = (member.status.ended_step for member in there if member.status is not None)
    return min((step for step in ended if step is not None), default=None)


def _not_beyond(limit: int | None, found: Sequence[Copy]) -> Iterator[Copy]:
    """The copies from which a generation may begin: none is newer than what all living ranks have ended."""
    return (copy for copy in found if limit is None or copy.step <= limit or copy.tier in _OF_ALL)


def birth(job: Job, step: int, generation: int) -> int:
    """The generation that computed the state which `generation` has after `step` steps: itself, unless it
    started from just that state."""
    line = job.generations.lines.get(generation)
    return line[1] if line is not None and line[0] == step else generation


def generation_met(job: Job) -> bool:
    """Whether the newest generation may have met, and so have changed what the script built."""
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
            if status.held_step == 0 or state not in told:  # of many alike the first is the nearest
                yield Copy(Tier.DONOR, status.held_step, member.rank, word, born=born)
            told[state] = None
        elif member.generation == 0 or not met:
            yield Copy(Tier.FRESH, 0, member.rank, word)


def _of_another_cut(job: Job, member: Member, need: Shards, word: str) -> bool:
    """Whether what a member holds is a shard of a layout that is over."""
    status = member.status
    if status is None or status.held_step <= NO_STEP or member.generation == 0:
        return False
    return _held_in(member) < job.generations.cut_at or (need.recut and _held_shard(member) != word)


def _held_shard(member: Member) -> str:
    """Which shard the state of a member is: in a generation that it only was told of it says none."""
    told = member.status.shard if member.status is not None else ""
    generation, shard = member.shard_before
    return told or (shard if generation == _held_in(member) else "")


def _held_in(member: Member) -> int:
    """The generation that the state of a member belongs to: one that it was told of may never have met."""
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
    # Of many alike the nearest is enough. Two states of one member stay in their order.
    for (step, born, word), (rank, name, _) in sorted(alike.items(), key=lambda found: found[1][2]):
        yield Copy(Tier.MEMORY, step, rank, word, name, born=born)


def _gives(node: Node, hoped: bool) -> bool:
    return node.up or (hoped and node.state == "suspect")


def _kept(job: Job, member: Member) -> Iterator[tuple[int, int, int]]:
    """What a member's slots hold that may be gone on from: (generation, step, birth), ascending."""
    for generation, step in member.kept:
        if (member.name, step) not in job.restore.failed_sources and generation >= job.generations.cut_at:
            yield generation, step, birth(job, step, generation)


def _stranded(job: Job, node: Node, member: Member, word: str, need: Shards) -> Iterator[Copy]:
    """Snapshots that a member left where nobody needs them: those who do fetch them from its node."""
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
    """A READY slot. One that was filled by our own order is of the tier that it was filled from."""
    answer = job.restore.answered.get(member.name)
    if answer is None or answer.step != copy.step:
        return copy
    return replace(
        copy, tier=answer.tier, member=answer.source, checkpoint=answer.checkpoint, node=answer.keeper,
        arena=member.name, doubted=answer.doubted,
    )  # fmt: skip


def copy_key(member: str, node: str, step: int) -> tuple[str, int]:
    """The name, among `Job.spoiled`, of the snapshot of a member that a node keeps."""
    return f"{member}@{node}", step


def _barred(job: Job, copy: Copy, hoped: bool) -> bool:
    """Whether a copy at a peer is not to be asked for, or (`hoped`) not any more."""
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
    """Who fetches it: a rank beside it, or the first one that needs it."""
    beside = need.here.get((node.name, word))
    return need.readers.get(word) if beside is None else beside


def checkpoint_shard(record: CheckpointRecord) -> str:
    """The shard of a checkpoint that has only one."""
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
