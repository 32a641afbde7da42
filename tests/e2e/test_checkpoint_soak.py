"""A few of the blows of `python -m tests.soak`, as a test; another seed is another schedule."""

from __future__ import annotations

import pytest

from tests.soak.soak import Wish, soak


@pytest.mark.slow
def test_killed_at_random_instants_no_checkpoint_is_half_and_nothing_differs() -> None:
    told = soak(Wish(kills=8, seed=3, pace_s=0.05, say=print))
    assert told.identical and sum(told.kills.values()) >= 8
    assert told.samples["repeated"] == told.samples["skipped"] == 0
    assert told.loaded > 8 and told.verified > told.loaded
