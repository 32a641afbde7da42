"""A job's account: everything adds up to the time that it was given, over lives and leaders, and what nobody
saw is unknown."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controlplane.core.records import effects, events
from controlplane.core.records.model import JobPhase, JobSpec, JobState
from controlplane.core.rows import JobRow
from controlplane.daemon.leadership import accounts
from controlplane.daemon.telemetry import badput
from controlplane.daemon.telemetry.job_time import (
    LIVES_KEPT,
    PRODUCTIVE,
    STARTUP,
    TIMES,
    UNKNOWN,
    Account,
    JobTimes,
    Spent,
)
from controlplane.daemon.telemetry.metrics import LOST, Metrics
from controlplane.daemon.telemetry.observer import Observer

SPEC = JobSpec("j", ("train.py",), "/")


class Leader:
    """The observer of one leader term, and a clock that the test moves."""

    def __init__(self, clock: list[float], before: dict[str, Account] | None = None) -> None:
        self.clock, self.metrics = clock, Metrics("0")
        self.observer = Observer(self.metrics, lambda: clock[0], lambda: clock[0], before)

    def submit(self) -> None:
        self.observer.event(events.JobSubmitted(SPEC))

    def take_over(self, phase: JobPhase) -> None:
        self.observer.event(events.Elected(2, specs=(SPEC,), states=(JobState("j", phase, ""),)))

    def enter(self, *phases: JobPhase) -> None:
        for phase in phases:
            self.observer.effect(effects.JobChanged(JobState("j", phase, "")))

    def pass_s(
        self, span_s: float, step: int, phase: JobPhase = JobPhase.RUNNING, elastic: bool = True
    ) -> None:
        """Let time pass, then look at the job, which has completed so many steps."""
        self.clock[0] += span_s
        row = JobRow("j", phase.value, "", 1, 4, step, 0, 0, "", "")
        trains_as = self.observer._trains_as(row, elastic=elastic)
        self.observer._look_at(row, self.clock[0], trains_as)

    @property
    def row(self) -> dict[str, Any]:
        account = self.observer.account("j")
        assert account is not None
        return account.row()

    def counted(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"holdfast_{name}", {"training_job": "j", **labels})
        assert found is not None
        return found


def begun(leader: Leader) -> Leader:
    """A job that waited for 5 s, started for 10 s, and needed 20 s for its first step."""
    leader.submit()
    leader.clock[0] += 5
    leader.enter(JobPhase.STORING, JobPhase.LAUNCHING)
    leader.pass_s(10, -1, JobPhase.LAUNCHING)
    leader.enter(JobPhase.RUNNING)
    leader.pass_s(0, 0)
    leader.pass_s(20, 0)
    leader.pass_s(0, 1)
    return leader


def test_the_step_time_is_that_of_the_newest_steps_and_none_while_it_does_not_train() -> None:
    leader = begun(Leader([1000.0]))
    for step in (3, 5, 7):
        leader.pass_s(1, step)

    def step_s(phase: JobPhase) -> float:
        return leader.observer.step_s(JobRow("j", phase.value, "", 1, 4, 7, 0, 0, "", ""))

    assert step_s(JobPhase.RUNNING) > 0.4
    for step in range(9, 209, 2):
        leader.pass_s(1, step)
    assert step_s(JobPhase.RUNNING) == pytest.approx(0.5, rel=0.01)
    assert step_s(JobPhase.STOPPING) == 0.0, "what it was before is not what it is"
    assert leader.observer.step_s(JobRow("other", "running", "", 1, 4, 7, 0, 0, "", "")) == 0.0


def test_until_the_first_step_nothing_is_productive() -> None:
    row = begun(Leader([1000.0])).row
    assert row["lost_s"] == {"forming": 10.0, "startup": 20.0, "waiting": 5.0}
    assert (row["productive_s"], row["total_s"], row["goodput"]) == (0.0, 35.0, 0.0)
    assert row["badput_s"] == {"OTHER": 5.0, "PROGRAM_STARTUP": 20.0, "TRAINING_PREP": 10.0}


def test_what_steps_lose_is_taken_from_training_and_the_sum_stays() -> None:
    leader = begun(Leader([1000.0]))
    leader.pass_s(100, 50)
    leader.observer.lose("j", {"data": 12.0, "slow_rank": 30.0})
    leader.pass_s(10, 55)
    row = leader.row
    assert row["total_s"] == 145.0
    assert row["productive_s"] == pytest.approx(110 - 42)
    assert row["lost_s"]["data"] == 12.0 and row["lost_s"]["slow_rank"] == 30.0
    assert row["badput_s"]["DATA_LOADING_SYNC"] == 12.0
    assert leader.counted("lost_seconds_total", cause="slow_rank") == 30.0
    assert leader.counted("productive_seconds_total") == 100.0, "no counter goes down: it stands still"
    leader.pass_s(32, 60)
    assert leader.counted("productive_seconds_total") == 100.0
    leader.pass_s(8, 60)
    assert leader.counted("productive_seconds_total") == leader.row["productive_s"] == 108.0, "all is paid"
    assert leader.counted("goodput_ratio") == pytest.approx(108 / 185)


def test_no_more_is_lost_within_steps_than_there_was() -> None:
    leader = begun(Leader([1000.0]))
    leader.pass_s(7, 5)
    leader.observer.lose("j", {"data": 1e9})
    leader.observer.lose("j", {"slow_rank": 3.0})
    leader.observer.lose("unknown job", {"data": 3.0})
    leader.pass_s(0, 5)
    row = leader.row
    assert (row["total_s"], row["productive_s"], row["lost_s"]["data"]) == (42.0, 0.0, 7.0)
    assert "slow_rank" not in row["lost_s"]


def test_a_recovery_lasts_until_the_first_step_and_loading_is_restore() -> None:
    leader = begun(Leader([1000.0]))
    leader.pass_s(100, 50)
    seen = leader.observer._jobs["j"]
    leader.enter(JobPhase.STOPPING)
    seen.times.judged(leader.clock[0], "signaled")
    leader.pass_s(2, 50, JobPhase.STOPPING)
    leader.enter(JobPhase.LOADING)
    leader.pass_s(3, 50, JobPhase.LOADING)
    leader.enter(JobPhase.FORMING)
    leader.pass_s(4, 50, JobPhase.FORMING)
    leader.enter(JobPhase.RUNNING)
    leader.pass_s(0, 40)
    leader.pass_s(5, 40)
    leader.pass_s(1, 41)
    row = leader.row
    assert (row["lost_s"]["restore"], row["lost_s"]["signaled"]) == (3.0, 11.0)
    assert row["productive_s"] == 101.0
    assert row["badput_s"]["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"] == 11.0
    assert row["badput_s"]["UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"] == 3.0


def test_time_without_a_sight_of_steps_is_unknown() -> None:
    leader = Leader([1000.0])
    leader.submit()
    leader.enter(JobPhase.LAUNCHING, JobPhase.RUNNING)
    leader.pass_s(60, -1, elastic=False)
    row = leader.row
    assert (row["unknown_s"], row["productive_s"], row["goodput"]) == (60.0, 0.0, None)
    assert leader.counted("productive_seconds_total") == leader.counted("unknown_seconds_total") == 60.0
    assert leader.metrics.registry.get_sample_value("holdfast_goodput_ratio", {"training_job": "j"}) is None


def test_goodput_is_known_while_less_than_half_of_the_time_is_unknown() -> None:
    leader = begun(Leader([1000.0]))
    leader.pass_s(100, 50)
    leader.pass_s(134, -1, elastic=False)
    assert leader.row["goodput"] == pytest.approx(100 / 269, abs=1e-4)
    assert leader.counted("goodput_ratio") == pytest.approx(100 / 269)
    leader.pass_s(2, -1, elastic=False)
    assert leader.row["goodput"] is None, "136 of 271 s are unknown"
    assert leader.metrics.registry.get_sample_value("holdfast_goodput_ratio", {"training_job": "j"}) is None


def test_the_lives_of_a_job_are_counted_apart_and_together() -> None:
    leader = begun(Leader([1000.0]))
    leader.pass_s(100, 50)
    assert leader.row["lives"] == []
    leader.enter(JobPhase.STOPPING, JobPhase.STORING, JobPhase.LAUNCHING)
    leader.pass_s(10, 50, JobPhase.LAUNCHING)
    leader.enter(JobPhase.RUNNING)
    leader.pass_s(0, 40)
    leader.pass_s(30, 60)
    row = leader.row
    assert [(life["total_s"], life["productive_s"]) for life in row["lives"]] == [
        (135.0, 100.0),
        (40.0, 30.0),
    ]
    assert sum(life["total_s"] for life in row["lives"]) == row["total_s"] == 175.0
    again = accounts.unpacked(accounts.packed(leader.observer._jobs["j"].account))
    assert again.row() == row


def test_nobody_saw_what_the_job_did_between_two_leaders() -> None:
    first = begun(Leader([1000.0]))
    first.pass_s(100, 50)
    kept = accounts.unpacked(accounts.packed(first.observer._jobs["j"].account))
    first.clock[0] += 25
    second = Leader(first.clock, {"j": kept})
    second.take_over(JobPhase.RUNNING)
    second.pass_s(10, 50)
    row = second.row
    assert (row["unknown_s"], row["productive_s"], row["total_s"]) == (25.0, 110.0, 170.0)
    assert row["total_s"] == second.clock[0] - 1000.0


def test_a_paused_job_has_no_gap() -> None:
    first = begun(Leader([1000.0]))
    first.enter(JobPhase.PAUSED)
    first.pass_s(0, 1, JobPhase.PAUSED)
    kept = accounts.unpacked(accounts.packed(first.observer._jobs["j"].account))
    first.clock[0] += 1000
    second = Leader(first.clock, {"j": kept})
    second.take_over(JobPhase.PAUSED)
    second.pass_s(10, 1, JobPhase.PAUSED)
    assert second.row["total_s"] == 35.0


@pytest.mark.parametrize("seed", range(30))
def test_productive_lost_and_unknown_add_up_at_every_moment(seed: int) -> None:
    chance, account, now = random.Random(seed), Account(0.0), 0.0
    times = JobTimes(0.0)
    given_s, phase = 0.0, JobPhase.PENDING
    for _ in range(400):
        span_s = chance.random() * chance.choice((0.01, 1.0, 100.0))
        now += span_s
        given_s += span_s if TIMES[phase] != "nowhere" else 0.0
        act = chance.randrange(5)
        if act == 0:
            phase = chance.choice(list(JobPhase))
            times.enter(now, phase)
        elif act == 1:
            times.judged(now, "signaled")
        elif act == 2:
            times.owe(chance.choice(("data", "redone", "slow_rank")), chance.random() * 200)
        elif act == 3:
            times.trains_as(now, chance.choice((PRODUCTIVE, STARTUP, UNKNOWN)))
        else:
            account.begin_life(now)
        spent = times.take(now)
        assert spent.productive_s >= 0 and spent.unknown_s >= 0
        account.add(now, spent, times.corrections())
        assert times.elapsed_s == pytest.approx(given_s)
        assert account.total.total_s == pytest.approx(given_s, abs=1e-6)
        assert min(account.total.productive_s, account.total.unknown_s) >= 0
        if 0 < len(account.lives) < LIVES_KEPT:  # else the oldest are gone
            lives_s = sum(life.spent.total_s for life in account.lives)
            assert lives_s == pytest.approx(given_s, abs=1e-6)
    assert account.total.lost_s and account.row()["total_s"] == pytest.approx(given_s, abs=0.01)


def test_every_cause_has_a_name_of_googles() -> None:
    assert set(badput.NAMES) == set(LOST)
    google = {
        *(
            "TPU_INITIALIZATION",
            "TRAINING_PREP",
            "PROGRAM_STARTUP",
            "DATA_LOADING_SYNC",
            "DATA_LOADING_ASYNC",
        ),
        *("UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"),
        *("WASTED_PROGRESS_FROM_DISRUPTION", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"),
        *("CUSTOM_BADPUT_EVENTS", "OTHER"),
    }
    assert set(badput.NAMES.values()) <= google
    assert badput.totals({"from a newer leader": 2.0, "data": 1.0}, 3.0) == {
        "DATA_LOADING_SYNC": 1.0,
        "OTHER": 5.0,
    }


@pytest.mark.parametrize(
    "more",
    ['"unknown_s":-1', '"until_s":"never"', '"lives":7', '"lives":[{}]',
     '"lives":[{"since_s":1,"productive_s":1,"lost_s":{"x":-3}}]', '"until_s":1e999'],
)  # fmt: skip
def test_bad_parts_of_a_kept_account_are_refused(more: str) -> None:
    text = '{"v":1,"since_s":1.0,"productive_s":2.0,"lost_s":{},' + more + "}"
    with pytest.raises(ValueError, match=r"time account|impossible|could not convert"):
        accounts.unpacked(text.encode())


def test_an_old_leaders_account_is_read() -> None:
    found = accounts.unpacked(b'{"v":1,"since_s":1.0,"productive_s":2.0,"lost_s":{"rank/signaled":3.0}}')
    assert found == Account(1.0, Spent(2.0, {"rank/signaled": 3.0}))
