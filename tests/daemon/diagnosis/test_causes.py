"""The leader gathers the ends of an incident, judges them once they are there, and tells core and ledger."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from controlplane.analysis.incident_causes.incident import judged
from controlplane.core.records import effects as fx
from controlplane.core.records.diagnosis import BlamedByRecords, CauseFound, RankEnded
from controlplane.core.records.model import (
    Cause,
    Failure,
    Incident,
    Plan,
    Scope,
    Standing,
    Strategy,
    Verdict,
)
from controlplane.core.records.timing import CoreSettings
from controlplane.core.state.inquiries import BreakInquiry
from controlplane.daemon.diagnosis.causes import HELD_S, JUDGED_MOST, QUIET_S, SETTLE_S, FirstCauses
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.incident_causes.incident import IncidentEnds, JudgedIncident
    from controlplane.core.state.findings import Finding

RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 5, in f\nValueError: bad'
GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"


class Told:
    """A running job of four ranks, what its first causes posted, and which findings are held."""

    def __init__(
        self, policy: str = "report", judge: Callable[[IncidentEnds], JudgedIncident | None] | None = None
    ) -> None:
        self.play = running("submit nodes=2 nproc=2")
        self.play.cluster.settings = CoreSettings(restart_policy=policy)
        self.now, self.posted = 100.0, list[Any]()
        self.held: dict[str, list[str]] = {}
        self.noted: list[str] = []
        self.causes = FirstCauses(
            self.play.cluster, post=self.posted.append, hold=self._hold, clock=lambda: self.now,
            wall=lambda: 1e9 + self.now, judge=judge, note=lambda job, error: self.noted.append(repr(error)),
        )  # fmt: skip
        self.members = self.play.cluster.state.jobs["j"].seats

    async def _hold(self, job: str, findings: tuple[Finding, ...]) -> None:
        self.held[job] = [each.kind for each in findings]

    def incident(
        self,
        number: int = 1,
        *ranks: int,
        outcome: str = "open",
        cause: Cause = Cause.EXITED,
        before: int = 1,
    ) -> None:
        members = tuple(self.members[rank].member for rank in ranks)
        nodes = tuple(self.members[rank].node for rank in ranks)
        verdict = Verdict("j", Scope.RANK, cause, nodes, members, ranks, 3, ("rank 2 ended",))
        plan = Plan("j", Strategy.RESPAWN, (), (), "")
        self.causes.effect(fx.IncidentChanged(Incident(number, "j", verdict, plan, before, outcome=outcome)))

    def ended(self, rank: int, text: str = GONE, **more: Any) -> None:
        seat = self.members[rank]
        end = RankEnded(seat.node, 1, "j", seat.member, rank, 1, exit_code=1, text=text, at_s=1e9)
        self.causes.ended(dataclasses.replace(end, **more))

    async def wait(self, span_s: float) -> list[CauseFound]:
        self.now += span_s
        await self.causes.look()
        return self.posted


async def test_an_incident_is_judged_once_its_ends_are_there_and_it_is_quiet() -> None:
    told = Told()
    told.ended(0)
    told.incident(1, 2)
    told.ended(2, RAISED)
    assert await told.wait(QUIET_S / 2) == []
    (found,) = await told.wait(QUIET_S)
    assert (found.incident, found.rank, found.file, found.line) == (1, 2, "/app/train.py", 5)
    assert told.held["j"] == ["first_failure", "fails_again"]
    await told.wait(5.0)
    assert len(told.posted) == 1


async def test_rules_that_raise_are_named_and_the_next_incident_is_judged() -> None:
    def judge(known: IncidentEnds) -> JudgedIncident | None:
        if known.incident == 1:
            raise AttributeError("no such field")
        return judged(known)

    told = Told(judge=judge)
    told.incident(1, 2)
    told.ended(2, RAISED)
    assert await told.wait(1.0) == []
    assert told.noted == ["AttributeError('no such field')"]
    told.incident(2, 2)
    told.ended(2, RAISED)
    assert [each.incident for each in await told.wait(1.0)] == [2]
    assert told.noted[1:] == ["None"]


async def test_what_arrives_later_is_judged_again_a_few_times_at_most() -> None:
    told = Told()
    told.incident(1)
    told.ended(0, GONE)
    (first,) = await told.wait(1.0)
    assert first.cause == "connection_lost"
    told.ended(2, RAISED)
    assert [each.rank for each in await told.wait(1.0)][1:] == [2]
    for again in range(3 * JUDGED_MOST):
        told.ended(3, f"{RAISED} {again}")
        await told.wait(1.0)
    assert len(told.posted) <= JUDGED_MOST


async def test_a_rank_of_which_no_end_arrives_is_waited_for_and_then_taken_as_the_core_knows_it() -> None:
    told = Told()
    rank = 3
    dead = told.play.cluster.state.jobs["j"].members[told.members[rank].member]
    dead.failure = Failure(Cause.EXITED, "ended with code 3", exit_code=3)
    told.incident(1, rank)
    assert await told.wait(QUIET_S * 2) == []
    (found,) = await told.wait(SETTLE_S)
    assert (found.rank, found.cause) == (rank, "unknown")


async def test_a_job_that_fails_at_once_is_judged_before_the_process_ends() -> None:
    told = Told()
    told.ended(2, RAISED)
    told.incident(1, 2, outcome="failed")
    assert len(await told.wait(0.0)) == 1


def inquired(told: Told, incident: int) -> BreakInquiry:
    """Have the core inquire into the flight records of this incident."""
    broke = BreakInquiry(incident, 1, 1, 0.0)
    seat = told.members[0]
    broke.answers = {seat.node: (Standing(seat.member, 0, 40, "step", 0.0, stalled=False),)}
    told.play.cluster.state.jobs["j"].recovery.broke = broke
    return broke


BLAMED = BlamedByRecords(0, "other_shape", 0.95, "it called all_reduce of [1024]")


async def test_the_flight_records_of_a_break_are_waited_for_and_the_rank_they_blame_is_the_first() -> None:
    told = Told()
    broke = inquired(told, 1)
    told.incident(1, 3, cause=Cause.SIGNALED)
    told.ended(3, "", exit_code=None, signal=6)
    assert await told.wait(1.0) == []
    told.incident(1, 3, cause=Cause.SIGNALED, outcome="recovered")
    assert await told.wait(1.0) == []
    broke.judged, broke.blamed = True, (BLAMED,)
    (found,) = await told.wait(0.2)
    assert (found.rank, found.node, found.step) == (0, told.members[0].node, 40)
    assert (found.cause, found.text) == ("desynchronized", BLAMED.reason)
    await told.wait(5.0)
    assert len(told.posted) == 1


async def test_flight_records_that_come_too_late_have_the_incident_judged_again() -> None:
    told = Told()
    broke = inquired(told, 1)
    told.incident(1, 3, cause=Cause.SIGNALED)
    told.ended(3, "", exit_code=None, signal=6)
    (first,) = await told.wait(SETTLE_S)
    broke.judged, broke.blamed = True, (BLAMED,)
    assert [each.rank for each in await told.wait(0.2)] == [first.rank, 0] == [3, 0]


async def test_flight_records_of_an_earlier_break_are_not_waited_for_nor_taken() -> None:
    told = Told()
    inquired(told, 1).blamed = (BLAMED,)
    told.incident(2, 3, cause=Cause.SIGNALED)
    told.ended(3, "", exit_code=None, signal=6)
    assert [each.rank for each in await told.wait(1.0)] == [3]


async def test_a_job_that_fails_is_judged_before_its_flight_records_are() -> None:
    told = Told()
    inquired(told, 1)
    told.ended(3, "", exit_code=None, signal=6)
    told.incident(1, 3, cause=Cause.SIGNALED, outcome="failed")
    assert [each.rank for each in await told.wait(0.0)] == [3]


async def test_the_same_failure_in_the_next_incident_is_recognised_and_findings_are_let_go_of() -> None:
    told = Told()
    for number in (1, 2):
        told.incident(number, 2)
        told.ended(2, RAISED, step=9, generation=number)
        await told.wait(1.0)
        told.incident(number, 2, outcome="recovered")
    assert [each.advice_confidence >= 0.95 for each in told.posted] == [False, True]
    await told.wait(HELD_S + 1.0)
    assert told.held["j"] == []


async def test_an_end_of_an_earlier_generation_is_of_no_later_incident() -> None:
    """Agents send what the leader before may not have taken to the next one."""
    told = Told()
    told.ended(1, RAISED, member="j.1000001", generation=3)
    told.ended(3, generation=4)
    told.incident(1, 2, before=4)
    told.ended(0, RAISED, member="j.1000000", generation=3)
    told.ended(2, RAISED, generation=4)
    (found,) = await told.wait(1.0)
    assert found.rank == 2 and not found.candidates, found


async def test_the_end_of_a_rank_that_failed_counts_though_it_never_formed_the_newest_generation() -> None:
    told = Told()
    told.ended(2, RAISED, generation=3)
    told.incident(1, 2, before=4)
    (found,) = await told.wait(1.0)
    assert (found.rank, found.line) == (2, 5)


async def test_planned_changes_spares_strangers_and_the_policy_off_say_nothing() -> None:
    told = Told()
    told.incident(1, cause=Cause.RESIZED)
    told.ended(2, ordered="moved", exit_code=None, signal=9)
    assert await told.wait(5.0) == []
    told.incident(2, 2)
    told.ended(2, RAISED, node="elsewhere")
    told.causes.ended(RankEnded("a", 1, "j", "j.77", text=RAISED))
    told.ended(2, RAISED, job="another")
    assert await told.wait(5.0) == []
    off = Told("off")
    off.incident(1, 2)
    off.ended(2, RAISED)
    off.causes.heard("a", 1e9)
    assert await off.wait(5.0) == []


async def test_an_end_that_came_long_before_belongs_to_no_later_incident() -> None:
    told = Told()
    told.ended(1, "ImportError: no")
    told.now += 3600.0
    told.incident(1, 2)
    told.ended(2, RAISED)
    (found,) = await told.wait(1.0)
    assert found.rank == 2 and found.cascade == ()


async def test_of_an_agent_that_sends_too_much_little_is_kept() -> None:
    told = Told()
    told.incident(1, 2)
    told.ended(2, "x" * 3_000_000 + "\n" + RAISED, log="y" * 100_000, kernel_text="z" * 100_000)
    (kept,) = told.causes._incidents["j"].ends.values()
    assert len(kept.text) + len(kept.log) + len(kept.kernel_text) < 30_000
    (found,) = await told.wait(1.0)
    assert (found.rank, found.line) == (2, 5)
