"""A few of the blows of `python -m tests.soak`, as a test; another seed is another schedule."""

from __future__ import annotations

import pytest

from tests.exhaustive import all_but
from tests.soak.soak import Wish, soak


@pytest.mark.slow
@pytest.mark.parametrize("kills", all_but(1, [3, 8]))
def test_killed_at_random_instants_no_checkpoint_is_half_and_nothing_differs(kills: int) -> None:
    told = soak(Wish(kills=kills, seed=3, pace_s=0.05, say=print))
    assert told.identical and sum(told.kills.values()) >= kills
    assert told.samples["repeated"] == told.samples["skipped"] == 0
    assert told.loaded > kills and told.verified > told.loaded
