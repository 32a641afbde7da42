"""The detector against planted stoppages, as `benchmarks/diagnosis` scores it, on some seeds of each."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis.dumps import dumps
from benchmarks.diagnosis.score import flights, judged
from benchmarks.diagnosis.stoppages import PLANTS

NOBODY = {"all_completed", "in_progress", "two_ranks_disagree"}
SEEDS = range(8)


@pytest.mark.parametrize("plant", sorted(PLANTS.keys() - {"large"}))
def test_planted_stoppages_are_named_and_nobody_else(plant: str) -> None:
    score = flights(plant, SEEDS)
    assert (score.wrong, score.missed) == (0, 0)
    assert (score.right == 0) == (plant in NOBODY)


def test_one_of_256_ranks_is_named() -> None:
    case = dumps("large", 1)
    assert len(case.dumps) == 256 and {each.rank for each in judged(case).culprits} == case.culprits


def test_of_two_ranks_that_disagree_both_are_undetermined() -> None:
    for seed in SEEDS:
        found = judged(dumps("two_ranks_disagree", seed))
        assert [each.rank for each in found.undetermined] == [0, 1]


@pytest.mark.parametrize("why", ["absent", "empty", "stale"])
def test_lost_dumps_are_told_apart(why: str) -> None:
    for seed in SEEDS:
        case = dumps(f"{why}_noise", seed)
        missing = {each.rank: each.why.value for each in judged(case).missing}
        idle = [rank for rank, dump in case.dumps.items() if not dump["entries"] and rank not in case.lost]
        assert missing == {**case.lost, **dict.fromkeys(idle, "empty")}
        assert case.lost == dict.fromkeys(case.either, why)


def test_the_same_seed_gives_the_same_dumps() -> None:
    assert dumps("not_arrived", 3) == dumps("not_arrived", 3) != dumps("not_arrived", 4)
