"""Choose the nodes that keep copies of snapshots, so that every shard lives in enough failure domains.

Each shard has to lie in 1 + `replicas` domains. The domains of the ranks that hold it count; only what is
missing is copied, by one owner per shard (the first rank that holds it). `plan` is greedy: nodes that keep
copies already stay, so that no bytes move without need; then the nodes with the least to keep are taken. The
plan is made again (`job.replicas.replan`) when nodes, seats or shards have changed. It waits until every node
and rank has reported to this leader: their copies would not be counted otherwise."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Partner
from controlplane.core.records.notes import NoteKind
from controlplane.core.restore import keepers, sharding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

Load = tuple[int, int]
"""How much a node keeps for other nodes: (bytes, number of copies); compared in this order."""


@dataclass(frozen=True, slots=True)
class ShardNeed:
    """One shard that may need copies."""

    shard_id: str
    domains: tuple[str, ...]  # failure domains of the ranks that hold it; never empty
    size: int  # bytes of one copy; 0: not known yet
    former: tuple[str, ...] = ()  # nodes that keep copies of it now


@dataclass(frozen=True, slots=True)
class ReplicaHolder:
    """A node that could keep copies. `load`: what it keeps for other jobs already."""

    node: str
    domain: str
    load: Load = (0, 0)


@dataclass(slots=True)
class _Pool:
    """Possible holders by load, the lightest first; ties in the order given.

    `load` is the truth. A heap entry whose load is outdated is put back with the present one when it comes
    up."""

    holders: Sequence[ReplicaHolder]
    load: dict[str, Load]
    heap: list[tuple[Load, int]] = field(default_factory=list)

    def lightest(self, outside: list[str]) -> ReplicaHolder | None:
        """Return the least loaded holder whose domain is none of `outside`; None when there is none."""
        passed, found = [], None
        while self.heap and found is None:
            load, index = heapq.heappop(self.heap)
            holder = self.holders[index]
            if load != self.load[holder.node]:
                heapq.heappush(self.heap, (self.load[holder.node], index))
            elif holder.domain in outside:
                passed.append((load, index))
            else:
                found = holder
                passed.append((load, index))
        for entry in passed:
            heapq.heappush(self.heap, entry)
        return found

    def take(self, node: str, size: int) -> None:
        """Count one more copy of `size` bytes on this node."""
        held, copies = self.load[node]
        self.load[node] = held + size, copies + 1


@dataclass(slots=True)
class _Home:
    """Where one shard lives in the plan. `domains`: of its ranks and chosen nodes; `nodes`: the chosen."""

    shard: ShardNeed
    domains: list[str]
    nodes: list[str] = field(default_factory=list)

    def add(self, pool: _Pool, holder: ReplicaHolder) -> None:
        pool.take(holder.node, self.shard.size)
        self.domains.append(holder.domain)
        self.nodes.append(holder.node)


def plan(
    shards: Sequence[ShardNeed], holders: Sequence[ReplicaHolder], replicas: int
) -> dict[str, tuple[str, ...]]:
    """Return, for every shard in fewer than 1 + `replicas` domains, the nodes that are to keep copies of it.

    A shard gets fewer nodes than it needs, perhaps none, when there are no more domains."""
    by_name = {holder.node: holder for holder in holders}
    pool = _Pool(holders, {holder.node: holder.load for holder in holders})
    pool.heap = sorted((holder.load, index) for index, holder in enumerate(holders))
    homes = [_Home(shard, list(shard.domains)) for shard in shards if len(shard.domains) <= replicas]
    for home in homes:
        for former in (by_name[name] for name in home.shard.former if name in by_name):
            if len(home.domains) <= replicas and former.domain not in home.domains:
                home.add(pool, former)
    for home in _in_turns(homes):
        while len(home.domains) <= replicas and (holder := pool.lightest(home.domains)) is not None:
            home.add(pool, holder)
    return {home.shard.shard_id: tuple(home.nodes) for home in homes}


def _in_turns(homes: Sequence[_Home]) -> list[_Home]:
    """Order the shards so that their first domains take turns.

    Were all shards of one domain served last, the nodes left with room might all be in that very domain,
    which they cannot use."""
    seen: dict[str, int] = {}
    turns = []
    for index, home in enumerate(homes):
        turn = seen[home.domains[0]] = seen.get(home.domains[0], 0) + 1
        turns.append((turn, index))
    return [homes[index] for _, index in sorted(turns)]


def reconcile(state: ClusterState, job: Job) -> None:
    """Plan the holders of a running job's snapshots again when something about them may have changed."""
    if not job.replicas.replan or job.phase is not JobPhase.RUNNING or not job.elastic:
        return
    if job.generation is None or not job.generation.store:
        return
    job.replicas.waits = bool(job.seating.rank_sets.unreported) or _some_unheard(state)
    if job.replicas.waits:
        return
    job.replicas.replan = False
    if not job.spec.replicas:
        _none(state, job)
        return
    need = sharding.needed(state, job)
    _store_replica_shard_ids(state, job)
    owners = {shard_id: job.members[job.seats[rank].member] for shard_id, rank in need.readers.items()}
    shards = _shards(state, job, need.shard_ids, owners)
    few = any(len(shard.domains) <= job.spec.replicas for shard in shards)
    job.replicas.holders = plan(shards, _holders(state, job), job.spec.replicas) if few else {}
    _note_alone(state, job, shards)
    _order(state, job, owners)


def _some_unheard(state: ClusterState) -> bool:
    """Whether some node that etcd names has not reported to this leader yet."""
    if not state.all_heard:
        state.all_heard = all(node.state != "expected" for node in state.nodes.values())
    return not state.all_heard


def _none(state: ClusterState, job: Job) -> None:
    """Withdraw the orders of a job that wants no copies (--replicas 0)."""
    sharding.recall(state, job)
    _store_replica_shard_ids(state, job)
    job.replicas.holders, job.replicas.alone = {}, ""
    _order(state, job, {})


def _store_replica_shard_ids(state: ClusterState, job: Job) -> None:
    """Put into etcd that all replicas of the model hold the same shards, once that was seen.

    A later leader may not be able to see it: the ranks that showed it may be gone by then."""
    shard_ids = sharding.repeats(job)
    if shard_ids != job.generations.replica_shard_ids_stored:
        job.generations.replica_shard_ids_stored = shard_ids
        state.store(f"job/{job.name}", fx.StoreJob(job.name, job.kept()))


def _shards(
    state: ClusterState, job: Job, shard_ids: Sequence[str], owners: Mapping[str, Member]
) -> list[ShardNeed]:
    domains: dict[str, dict[str, None]] = {shard_id: {} for shard_id in owners}
    if len(owners) == 1:
        domains = {
            shard_id: dict.fromkeys(_domain(state, node) for node in job.seat_nodes()) for shard_id in owners
        }
    else:
        for seat, shard_id in zip(job.seats, shard_ids, strict=True):
            domains[shard_id][_domain(state, seat.node)] = None
    former = job.replicas.holders or _kept(state, job)
    sizes = {shard_id: owner.status.state_bytes if owner.status else 0 for shard_id, owner in owners.items()}
    return [
        ShardNeed(shard_id, tuple(domains[shard_id]), sizes[shard_id], former.get(shard_id, ()))
        for shard_id in owners
    ]


def _kept(state: ClusterState, job: Job) -> dict[str, tuple[str, ...]]:
    """Return, by shard id, the nodes that keep copies now: the choice of a former leader."""
    found: dict[str, tuple[str, ...]] = {}
    for node in keepers.of(state, job.name):
        for shard_id in dict.fromkeys(copy.shard for copy in node.copies_of(job.name)):
            found[shard_id] = (*found.get(shard_id, ()), node.name)
    return found


def _domain(state: ClusterState, node: str) -> str:
    found = state.nodes.get(node)
    return found.domain if found and found.domain else node


def _holders(state: ClusterState, job: Job) -> list[ReplicaHolder]:
    """Return the connected nodes that serve peers and take this job's copies, with what they keep for other
    jobs. A suspect node (its stream broke) stays a holder if it is one, but does not become one."""
    kept = {name for names in job.replicas.holders.values() for name in names}
    able = [n for n in state.nodes.values() if n.drain is None and n.takes(job.name)]
    able = [n for n in able if n.peer and (n.up or (n.state == "suspect" and n.name in kept))]
    able.sort(key=lambda node: node.name)
    return [
        ReplicaHolder(n.name, n.domain or n.name, (0, sum(copy.job != job.name for copy in n.copies)))
        for n in able
    ]


def _note_alone(state: ClusterState, job: Job, shards: Sequence[ShardNeed]) -> None:
    """Note once that some shard lives in too few domains, with the remedy."""
    short = [
        s
        for s in shards
        if len(s.domains) + len(job.replicas.holders.get(s.shard_id, ())) <= job.spec.replicas
    ]
    reason = ""
    if short:
        what = "its snapshots are" if len(shards) == 1 else f"{len(short)} of its {len(shards)} shards are"
        reason = (
            f"{what} in too few failure domains ({', '.join(short[0].domains)} only): with one more node "
            "(or domain) whose agent serves peers, copies would be kept there"
        )
    if reason and reason != job.replicas.alone:
        state.note(NoteKind.NO_PARTNER, job.name, reason)
    job.replicas.alone = reason


def _order(state: ClusterState, job: Job, owners: Mapping[str, Member]) -> None:
    """Send each owner's node its list of holders, unless it got just that list on its present stream."""
    wanted: dict[str, list[Partner]] = {}
    for shard_id, names in job.replicas.holders.items():
        owner = owners[shard_id]
        for name in names:
            wanted.setdefault(owner.node, []).append(Partner(owner.name, name, state.nodes[name].peer))
    for node in dict.fromkeys((*job.seat_nodes(), *job.replicas.replicated)):
        holders = tuple(wanted.get(node, ()))
        if state.up(node) and holders != job.replicas.replicated.get(node, ()):
            state.emit(fx.Replicate(node, job.name, holders))
            job.replicas.replicated[node] = holders
