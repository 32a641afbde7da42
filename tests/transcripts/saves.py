"""Add the transcripts' commands about checkpoints: parts, seals, mirrors, collections, scrubs, requests,
adoption."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import CheckpointPart, CheckpointRecord

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def parts(play: Play, plain: list[str], named: dict[str, str]) -> None:
    for order in list(play.writing):
        if order.node == named.get("on", order.node):
            play.writing.remove(order)
            digest = named.get("digest", f"part-{order.shard}-{order.share}")
            part = CheckpointPart(
                order.spec.job, order.checkpoint, order.shard, order.share, order.shares, order.rank,
                order.member, int(named.get("step", order.step)), order.generation, digest, 1000, 100,
            )  # fmt: skip
            play.feed(ev.PartPersisted(order.node, play.hosts[order.node].incarnation, part))


def persisted(play: Play, plain: list[str], named: dict[str, str]) -> None:
    parts(play, plain, {})
    sealed(play, plain, named)


def sealed(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order: fx.Seal = play.last[fx.Seal]
    record = CheckpointRecord(
        order.spec.job, order.checkpoint, order.step, order.generation, order.kind, order.base,
        f"digest-{order.checkpoint}", 1000, 100, order.versions,
    )  # fmt: skip
    if "lacks" in named:
        lost = int(named["lacks"])
        record = dataclasses.replace(record, versions=tuple(v for v in record.versions if v[0] != lost))
    play.feed(ev.Persisted(order.node, play.hosts[order.node].incarnation, record))


def published(play: Play, plain: list[str], named: dict[str, str]) -> None:
    orders, play.publishing = play.publishing, []
    for order in orders:
        node = play.hosts[order.node]
        made = bool(order.record.bad)  # a mark
        play.feed(
            ev.Published(order.node, node.incarnation, order.spec.job, order.record.id, understood=made)
        )


def mirrored(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order: fx.Mirror = play.last[fx.Mirror]
    node = play.hosts[order.node]
    play.feed(ev.Mirrored(order.node, node.incarnation, order.spec.job, order.record.id, " ".join(plain)))


def collected(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order: fx.Collect = play.last[fx.Collect]
    removed = () if plain else order.remove
    node = play.hosts[order.node]
    play.feed(ev.Collected(order.node, node.incarnation, order.spec.job, removed, 100, " ".join(plain)))


def scrubbed(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order: fx.Scrub = play.last[fx.Scrub]
    node = play.hosts[order.node]
    repaired, reason = int(named.get("repaired", 0)), " ".join(plain)
    play.feed(
        ev.Scrubbed(
            order.node,
            node.incarnation,
            order.spec.job,
            order.record.id,
            repaired,
            reason,
            bool(reason) and named.get("because", "rot") == "rot",
        )
    )


def failed(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order, name = play.last[fx.Persist], named["on"]
    play.writing = [each for each in play.writing if each.node != name]
    play.feed(
        ev.PersistFailed(
            name, play.hosts[name].incarnation, order.spec.job, order.checkpoint, " ".join(plain)
        )
    )


def ask(play: Play, plain: list[str], named: dict[str, str]) -> None:
    generation = play.etcd.generations["j"]
    for seat in generation.seats:
        if seat.node != named.get("on", seat.node):
            continue
        play.feed(
            ev.CheckpointAsked(
                seat.node,
                play.hosts[seat.node].incarnation,
                "j",
                seat.member,
                generation.number,
                int(plain[0]),
                named.get("request", "r1"),
            )
        )


def found(play: Play, plain: list[str], named: dict[str, str]) -> None:
    records = []
    for name in plain[0].split(","):
        step, generation = map(int, name.split("-"))
        records.append(
            CheckpointRecord(
                "j",
                name,
                step,
                generation,
                "full",
                name,
                named.get("digest", f"digest-{name}"),
                int(named.get("bytes", 1000)),
                100,
                ((0, step),),
                True,
                shards=tuple(named["shards"].split(",")) if "shards" in named else (),
            )
        )
    play.feed(ev.CheckpointsFound(named.get("job", "j"), tuple(records)))
