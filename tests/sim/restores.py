"""Simulate how agents bring state into place: loads, copies at replica holders, fetches."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import MemberPhase, PeerCopy, Source, Tier
from holdfast.ipc.skips import CopyState
from tests.sim.saves import later

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.agents import Agent
    from tests.sim.groups import Group
    from tests.sim.ranks import Rank, Slot


ALTERS_ONE_OF = 4
"""One of this many copies is altered by the node that keeps it."""


@dataclass(frozen=True)
class Kept:
    """A copy of a snapshot at a replica holder: what is reported of it, and the state itself."""

    told: PeerCopy
    line: str


def at_barrier(rank: Rank | None) -> bool:
    """Whether its arena may be written to: not once it works in a group, whatever order is still on its
    way."""
    return rank is not None and rank.phase is MemberPhase.READY


def load(agent: Agent, order: fx.Load) -> None:
    """Read a checkpoint's shard, or a share of it, into the member's arena."""
    later(agent, 1.0, lambda: _load(agent, order))


def _load(agent: Agent, order: fx.Load) -> None:
    name, rank, storage = order.record.id, agent.ranks.get(order.member), agent.world.storage
    corrupt = name in storage.rotten or name not in storage.lines
    reason = "chunk 3 does not match its hash" if corrupt else ""
    if agent.world.faulty():
        corrupt, reason = False, "the storage does not answer"
    elif not at_barrier(rank):
        corrupt, reason = False, f"{order.member} is not at the barrier"
    elif not corrupt and rank is not None and order.shares == 1:
        rank.fill(order.record.step, storage.lines[name], order.record.generation)
    elif not corrupt and rank is not None:
        rank.partial = (name, order.share, order.shares)
    agent.tell(
        ev.Loaded(
            agent.name, agent.incarnation, order.spec.job, name, order.member, reason, corrupt,
            order.shard, order.share, order.shares,
        )
    )  # fmt: skip


def owed(rank: Rank) -> bool:
    """Whether a copy of its newest released snapshot is on its way to another node."""
    return rank.name in rank.agent.pushing


def copies_of(rank: Rank) -> CopyState:
    """How far the copies of its newest released snapshot are, as its arena says."""
    kept = any(partner.member == rank.name for partner in rank.agent.partners)
    return CopyState.OWED if owed(rank) else CopyState.SETTLED if kept else CopyState.NONE


def replicate(agent: Agent, order: fx.Replicate) -> None:
    """Copy released snapshots of these members to their replica holders from now on."""
    agent.partners, agent.stored = order.partners, {}


def seal(member: str, slot: Slot, line: str) -> str:
    """The digest of a member's snapshot."""
    generation, step = slot
    return f"{member}/{generation}/{step}={line}"


def alters(agent: Agent, told: PeerCopy) -> bool:
    """Whether this node alters this copy. Not drawn from the seed, so that the rest of the schedule is
    unchanged."""
    words = f"{agent.world.options.seed} {agent.name} {told.member} {told.step}"
    return zlib.crc32(words.encode()) % ALTERS_ONE_OF == 0


def push(agent: Agent, step: int) -> None:
    """A step is released: send its snapshots to the replica holders, soon or late, most of the time.

    Their slots are read meanwhile. Their digests are reported before."""
    for partner in agent.partners:
        rank = agent.ranks.get(partner.member)
        slot = rank.slot(step, 0) if rank is not None else None
        if agent.stored.get((partner.member, partner.node)) == slot:
            continue
        if rank is not None and slot is not None and agent.world.rng.random() < 0.9:
            digest = seal(rank.name, slot, rank.slots[slot])
            vouched = ev.SnapshotVouched(
                agent.name, agent.incarnation, rank.name, rank.spec.job, *slot, digest
            )
            agent.vouched[rank.name, slot] = vouched
            agent.tell(vouched)
            agent.reads.append((rank.name, slot))
            agent.pushing.append(rank.name)
            later(agent, agent.world.push_s, partial(_pushed, rank, partner.node, step, slot))


def _pushed(rank: Rank, node: str, step: int, slot: Slot) -> None:
    _push(rank, node, step)
    rank.agent.reads.remove((rank.name, slot))
    rank.agent.pushing.remove(rank.name)
    rank.room()


def _push(rank: Rank, node: str, step: int) -> None:
    world = rank.agent.world
    keeper = world.by_name[node]
    slot = rank.slot(step, 0)
    if not keeper.up or slot is None:
        return
    line = rank.slots[slot]
    digest = seal(rank.name, slot, line)
    told = PeerCopy(rank.name, rank.spec.job, rank.rank, rank.word, step, slot[0], digest)
    kept = [k for k in keeper.copies if k.told.member == rank.name]
    rank.agent.stored[rank.name, node] = slot
    if any(k.told == told for k in kept):
        return
    own = sorted(kept, key=lambda k: (k.told.generation, k.told.step))[-1:]
    line = f"{line} altered by {node}" if alters(keeper, told) else line
    keeper.copies = [k for k in keeper.copies if k not in kept or k in own] + [Kept(told, line)]


def discard(agent: Agent, order: fx.Discard) -> None:
    """Drop the copies of these members."""
    agent.copies = [kept for kept in agent.copies if kept.told.member not in order.members]


def fetch(agent: Agent, order: fx.Fetch) -> None:
    """Bring a copy from the agent that keeps it into the member's arena."""
    later(agent, 1.0, lambda: _fetch(agent, order))


def _fetch(agent: Agent, order: fx.Fetch) -> None:
    keeper = next(each for each in agent.world.agents if f"{each.name}:peer" == order.address)
    wanted = (order.source, order.step, order.generation)
    found = [k.line for k in keeper.copies if (k.told.member, k.told.step, k.told.generation) == wanted]
    left = keeper.ranks.get(order.source)  # a member of its own that had the place
    if left is not None and (order.generation, order.step) in left.slots:
        found.append(left.slots[order.generation, order.step])
    rank = agent.ranks.get(order.member)
    reason = "" if keeper.up and found and not agent.world.faulty() else "connection refused"
    slot = order.generation, order.step
    altered = not reason and order.digest not in ("", seal(order.source, slot, found[0]))
    if not at_barrier(rank):
        altered, reason = False, f"{order.member} is not at the barrier"
    elif altered:
        reason = "it is not what was vouched for"
    elif not reason and rank is not None:
        rank.fill(order.step, found[0], order.generation)
    agent.tell(
        ev.Fetched(
            agent.name, agent.incarnation, order.job, order.member, order.source, order.step, reason, altered
        )
    )


def robbed(group: Group) -> Rank | None:
    """A rank that must read an arena that its agent removed when the job ended before; None when there is
    none.  The leader may not know of the removal yet. The SDK reports the failure, and another source is
    chosen."""
    for source in _sources(group):
        reader = group.members[source.rank]
        gone = source.member in reader.agent.let_go and source.member not in reader.agent.ranks
        if gone and READ[source.tier] is _arena:
            return reader
    return None


def _sources(group: Group) -> tuple[Source, ...]:
    """The sources of the state: as the restore point lists them; where it names one rank only, that for
    all."""
    resume = group.generation.resume
    one = Source(group.members[0].word, resume.tier, resume.rank, resume.member)
    return resume.sources or (one,)


def source_line(group: Group) -> str:
    """The lineage that a generation's restore point names.

    It must really exist, whole and of one state."""
    resume, world = group.generation.resume, group.world
    if resume.reshard:
        return world.storage.lines[resume.checkpoint]
    words = list(dict.fromkeys(rank.word for rank in group.members.values()))
    assert len(words) == 1 or resume.sources or resume.tier is Tier.FRESH, f"one source for shards {words}"
    sources = _sources(group)
    if len(words) > 1 and resume.sources:
        given = sorted({source.shard for source in sources})
        assert given == sorted(words) or resume.step == 0, f"needs {sorted(words)}, is given {given}"
    lines = [READ[source.tier](group, source) for source in sources]
    told = sorted({line for line in lines if line})
    assert len(told) <= 1, f"step {resume.step} is put together from {told}"
    shares = [source.share for source in sources if source.shares > 1]
    assert shares == list(range(len(shares))), f"shares {shares} are read"
    return told[0] if told else world.new_line()


def _fresh(group: Group, source: Source) -> str:
    return ""


def _donor(group: Group, source: Source) -> str:
    donor, step = group.members[source.rank], group.generation.resume.step
    assert donor.held == step, f"the donor holds {donor.held}, not {step}"
    assert donor.word == source.shard, f"the donor holds {donor.word}, not {source.shard}"
    return donor.line if step else ""


def _arena(group: Group, source: Source) -> str:
    reader, step = group.members[source.rank], group.generation.resume.step
    name = source.member or reader.name
    owner = reader.agent.ranks.get(name)
    assert owner is not None, f"{name} left no snapshot on {reader.agent.name}"
    known = owner.world_size > 0  # else it has been in no group: it holds what was loaded for it
    unnamed = step == 0 and source.shard.startswith("?")  # as for shard ids: nobody reports them any more
    fits = unnamed or owner.word in (source.shard, "")
    assert not known or fits, f"{name} holds {owner.word}, not {source.shard}"
    if source.shares > 1:
        wanted = (group.generation.resume.checkpoint, source.share, source.shares)
        assert owner.partial == wanted, f"{name} has read {owner.partial}, not {wanted}"
        return group.world.storage.lines[wanted[0]]
    slot = owner.slot(step, group.generation.resume.born)
    assert slot is not None, f"{name} has {list(owner.slots)}, not {step}"
    return owner.slots[slot] if step else ""


READ: dict[Tier, Callable[[Group, Source], str]] = {
    Tier.FRESH: _fresh,
    Tier.DONOR: _donor,
    Tier.MEMORY: _arena,
    Tier.PEER: _arena,
    Tier.CHECKPOINT: _arena,
}

RESTORE_ORDERS: dict[type[Any], Callable[[Agent, Any], None]] = {
    fx.Load: load,
    fx.Replicate: replicate,
    fx.Fetch: fetch,
    fx.Discard: discard,
}
