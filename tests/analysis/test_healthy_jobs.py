"""How alarms about healthy jobs are counted."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis.healthy import KINDS, upper_bound
from controlplane.cli.demo import faults


@pytest.mark.parametrize(("count", "bound"), [(0, 2.996), (1, 4.744), (5, 10.513), (100, 118.08)])
def test_the_upper_bound_is_that_of_the_tables(count: int, bound: float) -> None:
    assert upper_bound(count) == pytest.approx(bound, rel=1e-3)


def test_healthy_kinds_are_kinds_of_the_demo_that_blame_no_rank() -> None:
    assert not [kind for kind in KINDS if faults.KINDS[kind].has_rank]
