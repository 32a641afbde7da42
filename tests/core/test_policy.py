"""The pure policies: verdicts, strategies, seats."""

from __future__ import annotations

import math

import pytest

from controlplane.core.failures import verdicts
from controlplane.core.placement import formation
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Cause, Failure, Scope, Strategy
from controlplane.core.recovery import strategies
from controlplane.core.state.deadlines import Deadlines
from tests.core.make import dead, seats, spec

# ---------------------------------------------------------------- deadlines


def test_the_earliest_wish_wins_and_is_due_once() -> None:
    deadlines = Deadlines()
    assert deadlines.next() == math.inf
    deadlines.sooner(("job", "j"), 5.0)
    deadlines.sooner(("job", "j"), 3.0)
    deadlines.sooner(("job", "j"), 9.0)
    deadlines.sooner(("node", "a"), 4.0)
    assert deadlines.next() == 3.0
    assert deadlines.due(4.0) == [("job", "j"), ("node", "a")]
    assert deadlines.due(99.0) == []


def test_a_cleared_deadline_never_comes() -> None:
    deadlines = Deadlines()
    deadlines.sooner(("node", "a"), 1.0)
    deadlines.clear(("node", "a"))
    assert deadlines.next() == math.inf


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("layout", "hit", "cause", "scope"),
    [
        ((2, 2), (1,), Cause.SIGNALED, Scope.RANK),
        ((2, 2), (2, 3), Cause.SIGNALED, Scope.NODE),
        ((2, 2), (0, 2), Cause.SIGNALED, Scope.RANK),
        ((2, 2), (0, 1, 2, 3), Cause.SIGNALED, Scope.JOB),
        ((1, 1), (1,), Cause.SIGNALED, Scope.RANK),
        ((1, 1), (1,), Cause.NODE_RESTARTED, Scope.NODE),
        ((8, 8), tuple(range(8)), Cause.NODE_LOST, Scope.NODE),
        ((2, 2), (1,), Cause.DEVICE, Scope.DEVICE),
    ],
)
def test_the_scope_of_a_verdict(
    layout: tuple[int, ...], hit: tuple[int, ...], cause: Cause, scope: Scope
) -> None:
    places = seats(*layout)
    verdict = verdicts.judge("j", [dead(places[rank], cause) for rank in hit], places)
    assert (verdict.scope, verdict.cause, verdict.ranks) == (scope, cause, hit)
    assert len(verdict.evidence) == len(hit)


def test_the_first_injury_is_the_cause_although_it_is_heard_of_last() -> None:
    places = seats(2)
    echo = dead(places[0], Cause.EXITED, heard=1.0)
    first = dead(places[1], Cause.SIGNALED, heard=1.2, age=0.5)
    assert verdicts.judge("j", [echo, first], places).cause is Cause.SIGNALED


def test_a_death_explains_a_broken_collective() -> None:
    places = seats(2)
    suspicion = Evidence(0.5, Failure(Cause.BROKEN, "connection closed"))
    assert verdicts.root([suspicion, dead(places[1])]).failure.cause is Cause.SIGNALED


def test_only_exceptions_of_the_script_outlive_progress() -> None:
    raised = Failure(Cause.RAISED, "boom", step=3, exception="ValueError")
    assert verdicts.is_exception(verdicts.repeat_key(raised))
    assert not verdicts.is_exception(verdicts.repeat_key(Failure(Cause.SIGNALED, "kill", step=3)))


# ---------------------------------------------------------------- strategies


def situation(**changes: object) -> strategies.Situation:
    usual = {
        "elastic": True, "barrier": True, "exception": "", "repeats": 1, "restarts": 0, "max_restarts": 3,
        "dead": 1, "nodes_up": True, "spares": False,
    }  # fmt: skip
    return strategies.Situation(**(usual | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "changes", "strategy"),
    [
        (Cause.SIGNALED, {"spares": True}, Strategy.SPARE),
        (Cause.SIGNALED, {}, Strategy.RESPAWN),
        (Cause.SIGNALED, {"elastic": False}, Strategy.RELAUNCH),
        (Cause.SIGNALED, {"repeats": 3}, Strategy.RESPAWN),
        (Cause.SIGNALED, {"repeats": 4}, Strategy.STOP),
        (Cause.EXITED, {"elastic": False, "restarts": 3}, Strategy.STOP),
        (Cause.BROKEN, {"dead": 0}, Strategy.REFORM),
        (Cause.STUCK, {"dead": 0}, Strategy.REFORM),
        (Cause.NODE_LOST, {"nodes_up": False}, Strategy.AWAIT_NODE),
        (Cause.NODE_LOST, {"nodes_up": False, "repeats": 99}, Strategy.AWAIT_NODE),
        (Cause.NODE_RESTARTED, {}, Strategy.RESPAWN),
        (Cause.NODE_LOST, {"elastic": False, "restarts": 99}, Strategy.RELAUNCH),
        (Cause.RAISED, {"barrier": False, "exception": "KeyError"}, Strategy.STOP),
        (Cause.RAISED, {"barrier": False, "elastic": False, "exception": "ImportError"}, Strategy.STOP),
        (Cause.RAISED, {"barrier": True, "exception": "ImportError"}, Strategy.RESPAWN),
        (Cause.LAUNCH_FAILED, {"barrier": False}, Strategy.STOP),
        (Cause.LAUNCH_FAILED, {"barrier": True}, Strategy.RESPAWN),
    ],
)
def test_the_strategy(cause: Cause, changes: dict[str, object], strategy: Strategy) -> None:
    chosen, reason = strategies.choose(cause, situation(**changes))
    assert chosen is strategy
    assert reason
    assert "{" not in reason


def test_every_cause_has_a_ladder_that_ends() -> None:
    for cause in Cause:
        assert strategies.choose(cause, situation())[0]


# ---------------------------------------------------------------- seats


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"nproc_per_node": 0}, "--nproc-per-node 0"),
        ({"spares_per_node": -1}, "--spares -1"),
        ({"nnodes_min": 3, "nnodes_max": 2}, "--nnodes 3:2"),
        ({"argv": ()}, "no script"),
        ({"snapshot_every": 0}, "--snapshot-every 0"),
        ({"max_restarts": -1}, "--max-restarts -1"),
    ],
)
def test_impossible_sizes_are_named(changes: dict[str, object], flag: str) -> None:
    assert flag in formation.impossible(spec(**changes))
    assert not formation.impossible(spec())


def test_ranks_follow_the_nodes() -> None:
    placed = formation.layout(spec(nproc_per_node=2), ["a", "b"], ["m0", "m1", "m2", "m3"])
    assert [(p.rank, p.node, p.local_rank) for p in placed] == [
        (0, "a", 0), (1, "a", 1), (2, "b", 0), (3, "b", 1),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="3 members for 2 nodes"):
        formation.layout(spec(nproc_per_node=2), ["a", "b"], ["m0", "m1", "m2"])


def test_a_shortage_says_what_is_missing_and_the_mend() -> None:
    rooms = [
        formation.Capacity("a", 2, True),
        formation.Capacity("b", 8, False),
        formation.Capacity("c", 8, True),
    ]
    wanted = spec(nproc_per_node=4)
    assert formation.fitting(wanted, rooms) == ["c"]
    reason = formation.shortage(wanted, rooms, 2)
    assert "1 of 2" in reason
    assert "--slots 4" in reason
    assert "another job holds b" in reason
