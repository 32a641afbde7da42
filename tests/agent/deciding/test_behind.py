"""What an agent makes of a rank that has returned from its elastic function: only its process counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.deciding import effects as fx
from agent.deciding import events as ev
from controlplane.core.records import effects as orders
from controlplane.core.records import events
from controlplane.core.records.model import NO_STEP, Cause, MemberPhase, Standing
from holdfast.ipc.messages.launcher import MemberExited, SignalCommand
from tests.agent.deciding.test_aggregate import Stage, frames, running, told

if TYPE_CHECKING:
    from agent.deciding.effects import Effect

RETURN = orders.Return("n0", "j", 1)


def finished() -> Stage:
    stage = running()
    stage.said("finished", generation=1, step=9)
    return stage


def exits(stage: Stage, code: int | None, number: int | None = None) -> Any:
    end = MemberExited("j.1", 5, code, number, 0)
    (report,) = told(stage.tell(ev.LauncherReported(end)), events.MemberReport)
    return report.status


def kills(effects: list[Effect]) -> int:
    return sum(isinstance(e, fx.Command) and isinstance(e.command, SignalCommand) for e in effects)


def test_a_rank_that_has_finished_returns_once_and_may_end() -> None:
    stage = finished()
    assert frames(stage.order(RETURN)) == [{"op": "return", "generation": 1}]
    assert frames(stage.order(RETURN)) == [], "said again, it has its effect already"
    assert frames(stage.greeted("finished", 1)) == [{"op": "return", "generation": 1}], "but for a reconnect"
    status = exits(stage, 0)
    assert (status.phase, status.failure) == (MemberPhase.EXITED, None)


@pytest.mark.parametrize(("code", "number", "cause"), [(3, None, Cause.EXITED), (None, 9, Cause.SIGNALED)])
def test_another_end_is_a_failure(code: int | None, number: int | None, cause: Cause) -> None:
    stage = finished()
    stage.order(RETURN)
    assert exits(stage, code, number).failure.cause is cause


def test_who_has_not_finished_does_not_return() -> None:
    stage = running()
    assert frames(stage.order(RETURN)) == []
    stage.said("finished", generation=1, step=9)
    assert frames(stage.order(orders.Return("n0", "j", 2))) == [], "of another generation"
    assert exits(stage, 0).failure.exit_code == 0, "it was not told that it may"


def test_behind_its_function_nobody_is_silent() -> None:
    stage = finished()
    assert any(isinstance(effect, fx.TakeStacks) for effect in stage.passes(7))
    stage = finished()
    stage.order(RETURN)
    assert not any(isinstance(effect, fx.TakeStacks) for effect in stage.passes(60))
    late = ev.StacksReported(
        "j.1", 6.0, stage.member.last_message_at, Standing("j.1", 0, NO_STEP, "", 0.0, False)
    )
    assert kills(stage.tell(late)) == 0, "it was asked about before it was told"


def test_at_its_next_function_it_is_a_rank_like_any_other() -> None:
    stage = finished()
    stage.order(RETURN)
    stage.said("ready", generation=1, held_step=10, step=10)
    assert not stage.member.behind
    assert exits(stage, 0).failure.message == "ended too early, with code 0"


def test_a_job_that_fails_has_them_ended_and_one_that_finishes_has_not() -> None:
    for ok, count in ((False, 1), (True, 0)):
        stage = finished()
        stage.order(RETURN)
        stage.order(orders.Complete("n0", "j", ok, "a reason"))
        assert kills(stage.passes(8, beats=True)) == count


def test_beyond_a_cut_network_they_are_ended() -> None:
    """Another node may run their scripts by then."""
    stage = finished()
    stage.order(RETURN)
    stage.tell(ev.Linked(True))
    ended = [effect for _ in range(40) for effect in stage.tell(ev.Linked(False), 1.0)]
    assert kills(ended) == 1
