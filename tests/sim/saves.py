"""Simulate how agents make checkpoints: they write parts, seal, publish, mirror, collect, scrub.

The storage is shared and fake. A chunk is a word in a base; a share has one chunk that changes with every
step, and one that changes seldom, so that checkpoints of a base have chunks in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import CheckpointPart, CheckpointRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.agents import Agent

Chunk = tuple[str, str]
"""A base, and the chunk's name in it."""


@dataclass(frozen=True)
class Manifest:
    """A sealed checkpoint: the lineage of its state, and its chunks."""

    line: str
    chunks: tuple[Chunk, ...]


@dataclass
class Storage:
    """The content of a shared storage."""

    chunks: set[Chunk] = field(default_factory=set)
    parts: dict[str, Manifest] = field(default_factory=dict)  # by digest
    pending: dict[str, Manifest] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)  # published ones
    rotten: set[str] = field(default_factory=set)
    mirrored: set[str] = field(default_factory=set)

    @property
    def lines(self) -> dict[str, str]:
        """The lineage of every published checkpoint."""
        return {name: manifest.line for name, manifest in self.manifests.items()}

    def publish(self, name: str) -> None:
        """Publish the manifest, if it is not published."""
        self.manifests.setdefault(name, self.pending[name])

    def whole(self, name: str) -> bool:
        """Whether it is published, and every chunk is there."""
        manifest = self.manifests.get(name)
        return manifest is not None and self.chunks.issuperset(manifest.chunks)


def later(agent: Agent, slowest: float, do: Callable[[], None]) -> None:
    """Have this agent do something after a while, if it still lives then."""
    agent.after(agent.world.rng.uniform(0.1, slowest), do)


def persist(agent: Agent, order: fx.Persist) -> None:
    """Pin the slot at once; write its share after a while."""
    key = (order.checkpoint, order.member, order.shard, order.share)
    if key in agent.answers:
        agent.tell(agent.answers[key])
        return
    rank = agent.ranks.get(order.member)
    line = rank.slots.get((order.generation, order.step)) if rank else None
    agent.reads.append((order.member, (order.generation, order.step)))
    later(agent, 3.0, lambda: _write(agent, order, key, line))


def _write(agent: Agent, order: fx.Persist, key: tuple[Any, ...], line: str | None) -> None:
    agent.reads.remove((order.member, (order.generation, order.step)))
    if order.member in agent.ranks:
        agent.ranks[order.member].room()
    if key in agent.answers:
        return
    job, name, storage = order.spec.job, order.checkpoint, agent.world.storage
    if line is None or agent.world.faulty():
        reason = "the snapshot was overwritten" if line is None else "no space left on the storage"
        agent.tell(ev.PersistFailed(agent.name, agent.incarnation, job, name, reason))
        return
    piece = f"{order.shard}/{order.share} of {order.shares} of {line}"
    chunks = ((order.base, f"{piece} step {order.step}"), (order.base, f"{piece} about {order.step // 9}"))
    storage.chunks.update(chunks)
    digest = f"{name} {piece} by {order.member}"
    storage.parts[digest] = Manifest(line, chunks)
    part = CheckpointPart(
        job, name, order.shard, order.share, order.shares, order.rank, order.member, order.step,
        order.generation, digest, 100, 10,
    )  # fmt: skip
    agent.answers[key] = ev.PartPersisted(agent.name, agent.incarnation, part)
    agent.tell(agent.answers[key])


def seal(agent: Agent, order: fx.Seal) -> None:
    """Read all parts back: every share once, of one state, every chunk there."""
    later(agent, 0.5, lambda: _seal(agent, order))


def _seal(agent: Agent, order: fx.Seal) -> None:
    job, name, storage = order.spec.job, order.checkpoint, agent.world.storage
    if agent.world.faulty():
        agent.tell(ev.PersistFailed(agent.name, agent.incarnation, job, name, "a part cannot be read back"))
        return
    shards = {part.shard: part.shares for part in order.parts}
    wanted = sorted((shard, share) for shard, shares in shards.items() for share in range(shares))
    assert sorted((part.shard, part.share) for part in order.parts) == wanted, f"{name} lacks a share"
    parts = [storage.parts[part.digest] for part in order.parts]
    assert len({part.line for part in parts}) == 1, f"{name} is sealed from states of several lineages"
    chunks = tuple(chunk for part in parts for chunk in part.chunks)
    if not storage.chunks.issuperset(chunks):  # the order comes when everything is long over
        assert name in agent.world.safety.collected, f"{name} is sealed, but a chunk was collected meanwhile"
        agent.tell(ev.PersistFailed(agent.name, agent.incarnation, job, name, "a part cannot be read back"))
        return
    storage.pending[name] = Manifest(parts[0].line, chunks)
    record = CheckpointRecord(
        job, name, order.step, order.generation, order.kind, order.base, f"digest of {name}",
        agent.world.state_bytes, 10, order.versions,
    )  # fmt: skip
    agent.tell(ev.Persisted(agent.name, agent.incarnation, record))


def publish(agent: Agent, order: fx.Publish) -> None:
    """Publish the manifest."""
    name, storage = order.record.id, agent.world.storage
    if name not in storage.manifests and not order.record.bad:
        assert name in storage.pending, f"{name} is published but was never sealed"
        storage.publish(name)
    made = bool(order.record.bad)  # a mark
    agent.tell(ev.Published(agent.name, agent.incarnation, order.spec.job, name, understood=made))


def mirror(agent: Agent, order: fx.Mirror) -> None:
    """Copy what the second storage lacks."""
    later(agent, 1.0, lambda: _mirror(agent, order))


def _mirror(agent: Agent, order: fx.Mirror) -> None:
    reason = "the second storage does not answer" if agent.world.faulty() else ""
    if not reason:
        agent.world.storage.mirrored.add(order.record.id)
    agent.tell(ev.Mirrored(agent.name, agent.incarnation, order.spec.job, order.record.id, reason))


def collect(agent: Agent, order: fx.Collect) -> None:
    """Delete manifests, then the chunks that only they named, unless their base is written to.

    While it works, further orders of its kind are ignored."""
    agent.world.safety.collecting(order)
    if agent.collecting:
        return
    agent.collecting = True
    later(agent, 2.0, lambda: _collect(agent, order))


def _collect(agent: Agent, order: fx.Collect) -> None:
    storage, agent.collecting = agent.world.storage, False
    if agent.world.faulty():
        reason = "the storage does not answer"
        agent.tell(ev.Collected(agent.name, agent.incarnation, order.spec.job, (), 0, reason))
        return
    gone = [storage.manifests.pop(name) for name in order.remove if name in storage.manifests]
    kept = {chunk for manifest in storage.manifests.values() for chunk in manifest.chunks}
    for chunk in [chunk for manifest in gone for chunk in manifest.chunks]:
        if chunk not in kept and chunk[0] not in order.busy:
            storage.chunks.discard(chunk)
    agent.world.safety.stored()
    agent.tell(ev.Collected(agent.name, agent.incarnation, order.spec.job, order.remove, len(gone)))


def scrub(agent: Agent, order: fx.Scrub) -> None:
    """Read it again. Half of the rotten ones can be repaired."""
    later(agent, 1.0, lambda: _scrub(agent, order))


def _scrub(agent: Agent, order: fx.Scrub) -> None:
    name, storage = order.record.id, agent.world.storage
    corrupt, repaired, reason = name in storage.rotten, 0, ""
    if corrupt and agent.world.rng.random() < 0.5:
        storage.rotten.discard(name)
        corrupt, repaired = False, 1
    elif corrupt:
        reason = "chunk 3 does not match its hash"
    agent.tell(ev.Scrubbed(agent.name, agent.incarnation, order.spec.job, name, repaired, reason, corrupt))


SAVE_ORDERS: dict[type[Any], Callable[[Agent, Any], None]] = {
    fx.Persist: persist,
    fx.Seal: seal,
    fx.Mirror: mirror,
    fx.Publish: publish,
    fx.Collect: collect,
    fx.Scrub: scrub,
}
