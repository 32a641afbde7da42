"""In which order faults come: nothing that a short run must see is left to chance."""

from __future__ import annotations

import random

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.rounds import OWN_ROW, Bag

ROWS = {name.partition(".")[0] for name in KINDS}


@pytest.mark.parametrize("seed", range(8))
def test_one_of_each_row_comes_before_a_second_one_of_any(seed: int) -> None:
    bag = Bag(random.Random(seed), list(KINDS))
    first = [bag.draw(elastic=True) for _ in range(len(ROWS) + len(OWN_ROW))]
    assert {name.partition(".")[0] for name in first} == ROWS
    assert set(first) >= OWN_ROW
    rest = [bag.draw(elastic=True) for _ in range(len(KINDS) - len(first))]
    assert sorted(first + rest) == sorted(KINDS)


def test_a_kind_that_no_job_could_have_yet_waits_for_one() -> None:
    bag = Bag(random.Random(1), ["no_spare.shrinks", "rank.killed"])
    assert [bag.draw(elastic=False) for _ in range(2)] == ["rank.killed", "rank.killed"]
    assert bag.waits
    assert bag.draw(elastic=True) == "no_spare.shrinks"
