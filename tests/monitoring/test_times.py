"""Every second of a job is counted once, as training or as what it was lost to."""

from __future__ import annotations

import random

import pytest

from controlplane.core.records.model import Cause, JobPhase
from controlplane.daemon.telemetry.job_time import TIMES, JobTimes, StepPace
from controlplane.daemon.telemetry.metrics import LOST


def test_every_phase_has_its_account() -> None:
    assert set(TIMES) == set(JobPhase)
    assert set(TIMES.values()) - {"productive", "nowhere"} <= set(LOST)
    assert {cause.value for cause in Cause} <= set(LOST)


def test_a_failure_takes_the_time_until_it_was_noticed_too() -> None:
    times = JobTimes(0.0)
    times.enter(10.0, JobPhase.RUNNING)
    times.enter(110.0, JobPhase.STOPPING)
    times.judged(110.0, "signaled")
    times.owe("signaled", 2.0)
    times.enter(113.0, JobPhase.FORMING)
    times.enter(115.0, JobPhase.RUNNING)
    spent = times.take(120.0)
    assert spent.lost_s == {"waiting": 10.0, "signaled": 7.0}
    assert spent.productive_s == pytest.approx(103.0)


def test_a_planned_change_is_no_failure() -> None:
    times = JobTimes(0.0)
    times.enter(0.0, JobPhase.STOPPING)
    times.judged(0.0, "node_lost")
    times.enter(1.0, JobPhase.RUNNING)
    times.enter(2.0, JobPhase.FORMING)
    assert times.take(5.0).lost_s == {"node_lost": 1.0, "forming": 3.0}


def test_an_ended_job_spends_nothing() -> None:
    times = JobTimes(0.0)
    times.enter(0.0, JobPhase.FINISHED)
    spent = times.take(1000.0)
    assert (spent.productive_s, spent.lost_s) == (0.0, {})


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_the_time_and_nothing_goes_down(seed: int) -> None:
    chance = random.Random(seed)
    times, now, counted = JobTimes(0.0), 0.0, 0.0
    for _ in range(300):
        now += chance.random()
        act = chance.randrange(3)
        if act == 0:
            times.enter(now, chance.choice([p for p in JobPhase if TIMES[p] != "nowhere"]))
        elif act == 1:
            times.judged(now, "silent")
        else:
            times.owe("redone", chance.random() / 20)
        spent = times.take(now)
        assert spent.productive_s >= 0 and all(lost >= 0 for lost in spent.lost_s.values())
        counted += spent.productive_s + sum(spent.lost_s.values())
    times.enter(now, JobPhase.RUNNING)  # what is owed is paid by the seconds that follow
    spent = times.take(now + 1000)
    assert counted + spent.productive_s == pytest.approx(now + 1000)


def test_the_pace_counts_what_was_done_between_looks() -> None:
    pace = StepPace()
    assert pace.look(0.0, 10) == 0.0
    assert pace.look(1.0, 10) == 0.0
    assert pace.look(2.0, 14) == pytest.approx(0.5)
    pace.stop()
    assert pace.look(60.0, 20) == 0.0
    assert pace.look(61.0, 22) == pytest.approx(0.5)
    assert pace.look(62.0, 18) == 0.0
