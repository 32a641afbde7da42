"""Add the transcripts' commands about restoring: loads, copies at peers, fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import PeerCopy

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def keep(play: Play, plain: list[str], named: dict[str, str]) -> None:
    name, member = plain
    rank, step, generation = (int(named.get(key, 0)) for key in ("rank", "step", "gen"))
    shard, digest = named.get("shard", "all"), f"{member}/{generation}/{step}"
    if named.get("vouched", "yes") == "yes":
        owner = play.where[member]
        play.feed(
            ev.SnapshotVouched(owner, play.hosts[owner].incarnation, member, "j", generation, step, digest)
        )
    told = {"no": "", "yes": digest}.get(told := named.get("told", named.get("vouched", "yes")), told)
    play.hosts[name].copies[member] = PeerCopy(member, "j", rank, shard, step, generation, told)
    play.beat([name], {})


def brought(play: Play, plain: list[str], named: dict[str, str]) -> None:
    reason = " ".join(plain)
    corrupt = bool(reason) and named.get("because") == "rot"
    for order in list(play.bringing):
        if order.node != named.get("on", order.node):
            continue
        play.bringing.remove(order)
        incarnation = play.hosts[order.node].incarnation
        if isinstance(order, fx.Fetch):
            answer: Any = ev.Fetched(
                order.node, incarnation, order.job, order.member, order.source, order.step, reason,
                bool(reason) and named.get("because") == "altered",
            )  # fmt: skip
        else:
            answer = ev.Loaded(
                order.node, incarnation, order.spec.job, order.record.id, order.member, reason, corrupt,
                order.shard, order.share, order.shares,
            )  # fmt: skip
        play.feed(answer)


def loaded(play: Play, plain: list[str], named: dict[str, str]) -> None:
    order: fx.Load = play.last[fx.Load]
    node, reason = play.hosts[order.node], " ".join(plain)
    play.feed(
        ev.Loaded(
            order.node,
            node.incarnation,
            order.spec.job,
            order.record.id,
            order.member,
            reason,
            bool(reason) and named.get("because", "rot") == "rot",
        )
    )
