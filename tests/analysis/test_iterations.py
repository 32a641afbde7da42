"""Iteration times: who became slow and when, who always is, and what is nobody's fault."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from benchmarks.diagnosis.fleets import PLANTS, fleet
from benchmarks.diagnosis.score import fleets, iterations
from controlplane.analysis.iterations.diagnosis import IterationsDiagnosis, State, Worker, diagnose
from controlplane.analysis.iterations.levels import pieces
from controlplane.analysis.iterations.pace import Iterations
from controlplane.core.state.findings import Level

SEEDS = range(8)


def made(*factors: dict[int, float], count: int = 120, noise: float = 0.01) -> list[Iterations]:
    """Workers whose durations change by these factors from these iterations on."""
    random = Random(7)
    workers = []
    for worker, changes in enumerate(factors):
        durations, factor = [], 1.0
        for at in range(count):
            factor = changes.get(at, factor)
            durations.append(factor * math.exp(random.gauss(0.0, noise)))
        workers.append(Iterations(worker, np.arange(float(count)), np.array(durations)))
    return workers


def states(found: IterationsDiagnosis) -> list[State]:
    return [each.state for each in found.workers]


def worker(found: IterationsDiagnosis, name: int | str) -> Worker:
    return next(each for each in found.workers if each.worker == name)


@pytest.mark.parametrize("plant", PLANTS)
def test_who_is_slow_is_named_and_nobody_else(plant: str) -> None:
    score = fleets(plant, SEEDS)
    assert (score.wrong, score.missed) == (0, 0)
    assert score.right == sum(len(fleet(plant, seed).slow) for seed in SEEDS)
    assert max(score.late, default=0.0) <= 3.0  # iterations


def test_a_straggler_that_stays_has_an_onset_and_no_recovery() -> None:
    found = diagnose(made({}, {50: 2.0}, {}, {}))
    assert states(found) == [State.EVEN, State.STRAGGLER, State.EVEN, State.EVEN]
    slow = worker(found, 1)
    assert (slow.onset, slow.recovery) == (50.0, None)
    assert slow.ratio == pytest.approx(2.0, rel=0.03)
    (finding,) = found.findings
    assert (finding.kind, finding.level, finding.place) == ("straggler", Level.CRITICAL, (("worker", 1),))
    assert "from time 50 to the end" in finding.reason and finding.recommendation


def test_a_straggler_does_not_make_the_others_look_as_if_they_had_recovered() -> None:
    found = diagnose(made({}, {80: 1.6}, {0: 1.25}))
    assert states(found) == [State.STEADILY_FASTER, State.STRAGGLER, State.STEADILY_SLOWER]
    assert {each.kind: each.subject for each in found.findings} == {
        "straggler": "worker 1",
        "slow_worker": "worker 2",
    }


def test_a_straggler_that_recovers_has_both_and_is_no_longer_critical() -> None:
    found = diagnose(made({}, {}, {}, {30: 2.0, 60: 1.0}))
    slow = worker(found, 3)
    assert (slow.state, slow.onset, slow.recovery) == (State.RECOVERED, 30.0, 60.0)
    assert found.findings[0].level is Level.DEGRADED


def test_one_that_is_slow_from_the_beginning_and_recovers_has_no_onset() -> None:
    slow = worker(diagnose(made({}, {0: 2.0, 40: 1.0}, {})), 1)
    assert (slow.state, slow.onset, slow.recovery) == (State.RECOVERED, None, 40.0)


def test_steady_differences_are_shown_and_only_great_ones_are_findings() -> None:
    found = diagnose(made({0: 0.8}, {}, {}, {0: 1.1}, {0: 1.4}))
    assert states(found) == [
        *(State.STEADILY_FASTER, State.EVEN, State.EVEN),
        *(State.STEADILY_SLOWER, State.STEADILY_SLOWER),
    ]
    (finding,) = found.findings
    assert (finding.kind, finding.subject) == ("slow_worker", "worker 4")


def test_what_slows_everybody_accuses_nobody() -> None:
    assert states(diagnose(made(*({60: 2.5} for _ in range(5))))) == [State.EVEN] * 5


def test_two_slow_iterations_are_noise() -> None:
    assert diagnose(made({}, {50: 6.0, 52: 1.0}, {}, {})).findings == ()


def test_of_several_episodes_the_one_that_lasts_is_told() -> None:
    found = diagnose(made({}, {20: 2.0, 30: 1.0, 90: 2.0}, {}, {}))
    slow = worker(found, 1)
    assert (slow.state, slow.onset) == (State.STRAGGLER, 90.0)
    assert dict(found.findings[0].evidence)["episodes_count"] == 2.0


def test_the_slowest_comes_first() -> None:
    found = diagnose(made({50: 1.5}, {50: 3.0}, {}, {}, {}, {}))
    assert [each.subject for each in found.findings] == ["worker 1", "worker 0"]


def test_workers_are_compared_at_the_same_time_however_often_they_report() -> None:
    """Everybody slows down at 60; one worker reports every third iteration, one ends early, one is late."""
    workers = made(*({60: 2.0} for _ in range(5)))
    few, early, late = workers[0], workers[1], workers[2]
    workers[0] = Iterations(0, few.time[::3] + 0.4, few.duration[::3])
    workers[1] = Iterations(1, early.time[:70], early.duration[:70])
    workers[2] = Iterations(2, late.time[55:], late.duration[55:])
    assert states(diagnose(workers)) == [State.EVEN] * 5


def test_one_worker_or_few_iterations_are_not_judged() -> None:
    assert states(diagnose(made({50: 3.0}))) == [State.UNJUDGED]
    assert states(diagnose(made({}, {5: 3.0}, {}, count=9))) == [State.UNJUDGED] * 3


def test_of_two_workers_the_slower_one_is_named() -> None:
    found = diagnose(made({}, {40: 2.0}))
    assert [each.subject for each in found.findings] == ["worker 1"]


def test_a_repeated_row_counts_once() -> None:
    workers = made({}, {}, {})
    one = workers[0]
    twice = Iterations(0, np.append(one.time, one.time[5]), np.append(one.duration, one.duration[5]))
    found = diagnose([twice, *workers[1:]])
    assert found.rows_repeated == 1 and found.workers == diagnose(workers).workers


def test_a_change_in_a_long_series_is_found_at_its_sample() -> None:
    random = Random(1)
    values = np.array(
        [(0.5 if 30_017 <= at < 47_311 else 0.0) + random.gauss(0.0, 0.05) for at in range(60_000)]
    )
    found = pieces(values)
    assert [abs(piece.begin - cut) <= 3 for piece, cut in zip(found, (0, 30_017, 47_311), strict=True)] == [
        True
    ] * 3


def test_fleets_shuffle_their_samples() -> None:
    """So the tests above also show that the order of rows does not matter."""
    samples = fleet("healthy", 0).samples
    assert samples != sorted(samples) and len(iterations(samples)) == len({each[0] for each in samples})
