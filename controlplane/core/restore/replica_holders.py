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
from controlplane.core.restore import state_sources

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

    word: str  # shard id
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

    keepers: Sequence[ReplicaHolder]
    load: dict[str, Load]
    heap: list[tuple[Load, int]] = field(default_factory=list)

    def lightest(self, outside: list[str]) -> ReplicaHolder | None:
        """Return the least loaded holder whose domain is none of `outside`; None when there is none."""
        passed, found = [], None
        while self.heap and found is None:
            load, index = heapq.heappop(self.heap)
            keeper = self.keepers[index]
            if load != self.load[keeper.node]:
                heapq.heappush(self.heap, (self.load[keeper.node], index))
            elif keeper.domain in outside:
                passed.append((load, index))
            else:
                found = keeper
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

    def add(self, pool: _Pool, keeper: ReplicaHolder) -> None:
        pool.take(keeper.node, self.shard.size)
        self.domains.append(keeper.domain)
        self.nodes.append(keeper.node)


def plan(
    shards: Sequence[ShardNeed], keepers: Sequence[ReplicaHolder], replicas: int
) -> dict[str, tuple[str, ...]]:
    """Return, for every shard in fewer than 1 + `replicas` domains, the nodes that are to keep copies of it.

    A shard gets fewer nodes than it needs, perhaps none, when there are no more domains."""
    by_name = {keeper.node: keeper for keeper in keepers}
    pool = _Pool(keepers, {keeper.node: keeper.load for keeper in keepers})
    pool.heap = sorted((keeper.load, index) for index, keeper in enumerate(keepers))
    homes = [_Home(shard, list(shard.domains)) for shard in shards if len(shard.domains) <= replicas]
    for home in homes:
        for former in (by_name[name] for name in home.shard.former if name in by_name):
            if len(home.domains) <= replicas and former.domain not in home.domains:
                home.add(pool, former)
    for home in _in_turns(homes):
        while len(home.domains) <= replicas and (keeper := pool.lightest(home.domains)) is not None:
            home.add(pool, keeper)
    return {home.shard.word: tuple(home.nodes) for home in homes}


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


def reconcile(m: ClusterState, job: Job) -> None:
    """Plan the holders of a running job's snapshots again when something about them may have changed."""
    if not job.replicas.replan or job.phase is not JobPhase.RUNNING or not job.elastic:
        return
    if job.generation is None or not job.generation.store or job.seating.rolls.unheard:
        return
    if any(node.state == "expected" for node in m.nodes.values()):
        return
    job.replicas.replan = False
    if not job.spec.replicas:
        _none(m, job)
        return
    need = state_sources.shards(m, job)
    _keep_words(m, job)
    owners = {word: job.members[job.seats[rank].member] for word, rank in need.readers.items()}
    shards = _shards(m, job, need.words, owners)
    job.replicas.partners = plan(shards, _keepers(m, job), job.spec.replicas)
    _tell_alone(m, job, shards)
    _order(m, job, owners)


def _none(m: ClusterState, job: Job) -> None:
    """Withdraw the orders of a job that wants no copies (--replicas 0)."""
    state_sources.recall(m, job)
    _keep_words(m, job)
    job.replicas.partners, job.replicas.alone = {}, ""
    _order(m, job, {})


def _keep_words(m: ClusterState, job: Job) -> None:
    """Put into etcd that all replicas of the model hold the same shards, once that was seen.

    A later leader may not be able to see it: the ranks that showed it may be gone by then."""
    words = state_sources.repeats(job)
    if words != job.generations.cut_words_told:
        job.generations.cut_words_told = words
        m.store(f"job/{job.name}", fx.StoreJob(job.name, job.state()))


def _shards(m: ClusterState, job: Job, words: Sequence[str], owners: Mapping[str, Member]) -> list[ShardNeed]:
    domains: dict[str, dict[str, None]] = {word: {} for word in owners}
    if len(owners) == 1:
        domains = {word: dict.fromkeys(_domain(m, node) for node in job.seat_nodes()) for word in owners}
    else:
        for seat, word in zip(job.seats, words, strict=True):
            domains[word][_domain(m, seat.node)] = None
    former = job.replicas.partners or _kept(m, job)
    sizes = {word: owner.status.state_bytes if owner.status else 0 for word, owner in owners.items()}
    return [ShardNeed(word, tuple(domains[word]), sizes[word], former.get(word, ())) for word in owners]


def _kept(m: ClusterState, job: Job) -> dict[str, tuple[str, ...]]:
    """Return, by shard id, the nodes that keep copies now: the choice of a former leader."""
    found: dict[str, tuple[str, ...]] = {}
    for node in m.nodes.values():
        for word in dict.fromkeys(copy.shard for copy in node.copies_of(job.name)):
            found[word] = (*found.get(word, ()), node.name)
    return found


def _domain(m: ClusterState, node: str) -> str:
    found = m.nodes.get(node)
    return found.domain if found and found.domain else node


def _keepers(m: ClusterState, job: Job) -> list[ReplicaHolder]:
    """Return the connected nodes that serve peers and take this job's copies, with what they keep for other
    jobs. A suspect node (its stream broke) stays a holder if it is one, but does not become one."""
    kept = {name for names in job.replicas.partners.values() for name in names}
    able = [n for n in m.nodes.values() if n.drain is None and n.takes(job.name)]
    able = [n for n in able if n.peer and (n.up or (n.state == "suspect" and n.name in kept))]
    able.sort(key=lambda node: node.name)
    return [
        ReplicaHolder(n.name, n.domain or n.name, (0, sum(copy.job != job.name for copy in n.copies)))
        for n in able
    ]


def _tell_alone(m: ClusterState, job: Job, shards: Sequence[ShardNeed]) -> None:
    """Note once that some shard lives in too few domains, with the remedy."""
    short = [
        s for s in shards if len(s.domains) + len(job.replicas.partners.get(s.word, ())) <= job.spec.replicas
    ]
    reason = ""
    if short:
        what = "its snapshots are" if len(shards) == 1 else f"{len(short)} of its {len(shards)} shards are"
        reason = (
            f"{what} in too few failure domains ({', '.join(short[0].domains)} only): with one more node "
            "(or domain) whose agent serves peers, copies would be kept there"
        )
    if reason and reason != job.replicas.alone:
        m.note(NoteKind.NO_PARTNER, job.name, reason)
    job.replicas.alone = reason


def _order(m: ClusterState, job: Job, owners: Mapping[str, Member]) -> None:
    """Send each owner's node its list of holders, unless it got just that list on its present stream."""
    wanted: dict[str, list[Partner]] = {}
    for word, names in job.replicas.partners.items():
        owner = owners[word]
        for name in names:
            wanted.setdefault(owner.node, []).append(Partner(owner.name, name, m.nodes[name].peer))
    for node in dict.fromkeys((*job.seat_nodes(), *job.replicas.replicated)):
        partners = tuple(wanted.get(node, ()))
        if m.up(node) and partners != job.replicas.replicated.get(node, ()):
            m.emit(fx.Replicate(node, job.name, partners))
            job.replicas.replicated[node] = partners
