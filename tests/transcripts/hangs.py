"""Add the transcripts' commands about ranks that hang, and about numeric anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.diagnosis import BlamedByRecords, NodeResources
from controlplane.core.records.evidence import ReplayPass
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
    """The newest CollectStacks are answered: `RANK:SEQUENCE` for each, those not in late= within time, with a
    flight record of those in recorded=, and processN= as the words about rank N's process."""
    order: fx.CollectStacks = play.last[fx.CollectStacks]
    seats, entered = play.etcd.generations["j"].seats, dict(word.split(":") for word in plain)
    late = named.get("late", ",".join(str(seat.rank) for seat in seats)).split(",")
    recorded = named.get("recorded", "").split(",")
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
                flight_record="a record" if str(seat.rank) in recorded else "",
                process=named.get(f"process{seat.rank}", ""),
            )
            for seat in seats
            if seat.node == node
        )
        host = play.hosts[node]
        left = NodeResources(3 << 30, 0.25, "/logs", 1 << 29) if order.at_barrier else None
        play.feed(ev.StacksCollected(node, host.incarnation, "j", order.generation, order.round, ranks, left))


def judged(play: Play, plain: list[str], _: dict[str, str]) -> None:
    """The newest JudgeRecords is answered: `RANK:KIND:CONFIDENCE` for each rank that is blamed."""
    asked: fx.JudgeRecords = play.last[fx.JudgeRecords]
    parts = [word.split(":") for word in plain]
    blamed = tuple(
        BlamedByRecords(int(rank), kind, float(confidence), f"its record shows {kind}")
        for rank, kind, confidence in parts
    )
    play.feed(ev.RecordsJudged(asked.job, asked.generation, asked.round, blamed))


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


def _pass(words: str) -> ReplayPass:
    kind, shift, digests = words.split(":")
    odd = [(rank, each) for rank, each in enumerate(digests.split(",")) if each != "a"]
    return ReplayPass(kind, int(shift), "a", tuple(r for r, _ in odd), tuple(each for _, each in odd))


def replicas(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """`replicas STEP AGREED [ranks=0,1,2] [odd=1] [on=MEMBER] [buffers=yes] [uncovered=NAME] [replay=CODE]
    [gradients=CODE] [passes=KIND:SHIFT:a,a,b;...]`: ranks have compared their replicas, and perhaps run the
    steps again. A pass gives a digest for each rank; `a` is what most hold."""
    generation = play.etcd.generations["j"]
    seat = next(seat for seat in generation.seats if seat.member == named.get("on", seat.member))
    ranks, odd = (
        tuple(int(rank) for rank in named.get(key, "").split(",") if rank) for key in ("ranks", "odd")
    )
    play.feed(
        ev.ReplicasReported(
            seat.node,
            play.hosts[seat.node].incarnation,
            "j",
            seat.member,
            int(named.get("gen", generation.number)),
            int(plain[0]),
            int(plain[1]),
            ranks,
            odd,
            ("model.state.weight",) if ranks else (),
            digests=tuple(f"rank {rank}: {int(rank in odd)}" for rank in ranks),
            buffers=named.get("buffers", "no") == "yes",
            uncovered=tuple(filter(None, [named.get("uncovered", "")])),
            replay=named.get("replay", ""),
            passes=tuple(_pass(each) for each in named.get("passes", "").split(";") if each),
            gradients=named.get("gradients", ""),
        )
    )
