"""Each workload of the field, killed once or twice, ends with the bits and the samples of the plain loop."""

from __future__ import annotations

import pytest

from tests.workloads.__main__ import GPUS
from tests.workloads.blows import PHASES
from tests.workloads.running import strike
from tests.workloads.table import WORKLOADS, Workload

NAMES = [workload.name for workload in WORKLOADS]
KILLS = 2
ROWS = [pytest.param(each, marks=pytest.mark.exhaustive) if each.variant else each for each in WORKLOADS]


@pytest.mark.slow
@pytest.mark.parametrize("workload", ROWS, ids=NAMES)
def test_a_killed_workload_is_exact_or_refused_by_name(workload: Workload) -> None:
    if workload.gpu and workload.ranks > GPUS:
        pytest.skip(f"{workload.name} needs {workload.ranks} GPUs, there are {GPUS}")
    row = strike(workload, KILLS, seed=NAMES.index(workload.name))
    assert not row.wrong, "\n".join(row.wrong)
    assert row.refused == bool(workload.refused)
    assert row.kills == (0 if workload.refused else KILLS)
    assert row.phases.keys() <= set(PHASES)
