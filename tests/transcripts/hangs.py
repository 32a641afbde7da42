"""Add the transcripts' commands about ranks that hang, and about numeric anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Collective, MemberPhase, Standing

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def stalled(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """Agents report that these ranks (or all) are past their deadlines."""
    for seat in play.etcd.generations["j"].seats:
        status = play.hosts[seat.node].members[seat.member]
        if status.phase is MemberPhase.RUNNING and (not plain or str(seat.rank) in plain):
            play.report([seat.member, "running"], {"stalled": named.get("s", "60"), **named})


def stood(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """The newest CollectStacks are answered: `RANK:SEQUENCE` for each, those not in late= within time."""
    order: fx.CollectStacks = play.last[fx.CollectStacks]
    seats, entered = play.etcd.generations["j"].seats, dict(word.split(":") for word in plain)
    late = named.get("late", ",".join(str(seat.rank) for seat in seats)).split(",")
    for node in dict.fromkeys(seat.node for seat in seats):
        ranks = tuple(
            Standing(
                seat.member,
                seat.rank,
                int(named.get(f"step{seat.rank}", named.get("step", 20))),
                named.get(f"doing{seat.rank}", "forward"),
                float(named.get("s", 60)),
                str(seat.rank) in late,
                _groups(entered.get(str(seat.rank))),
                (f"wait{seat.rank} (train.py:{40 + seat.rank})",),
                f"stacks of rank {seat.rank}",
            )
            for seat in seats
            if seat.node == node
        )
        host = play.hosts[node]
        play.feed(ev.StacksCollected(node, host.incarnation, "j", order.generation, order.round, ranks))


def _groups(entered: str | None) -> tuple[Collective, ...]:
    return (Collective("0", int(entered), -1, "gloo:all_reduce", 848),) if entered else ()


def fault(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """`fault STEP REASON [on=MEMBER] [kind=user] [rollback=no]`: a script reports a numeric anomaly."""
    generation = play.etcd.generations["j"]
    seat = next(seat for seat in generation.seats if seat.member == named.get("on", seat.member))
    play.feed(
        ev.UserFault(
            seat.node,
            play.hosts[seat.node].incarnation,
            "j",
            seat.member,
            int(named.get("gen", generation.number)),
            int(plain[0]),
            named.get("kind", "nan"),
            " ".join(plain[1:]),
            named.get("rollback", "yes") == "yes",
        )
    )
