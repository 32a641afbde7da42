"""The phases of a job: which may follow which, asserted where they change, and drawn in ARCHITECTURE.md."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from controlplane.core.records.model import JobSpec
from controlplane.core.records.timing import CoreSettings
from controlplane.core.records.words import TRANSITIONS, JobPhase
from controlplane.core.state.cluster_state import ClusterState
from controlplane.core.state.job import ENDED, Job

ROOT = Path(__file__).resolve().parents[3]


def test_every_phase_has_a_row_and_only_the_ended_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(JobPhase)
    assert {phase for phase, after in TRANSITIONS.items() if not after} == set(ENDED)
    reached = {after for row in TRANSITIONS.values() for after in row}
    assert reached == set(JobPhase) - {JobPhase.PENDING}


def test_a_change_that_is_not_in_the_table_is_an_error() -> None:
    state, job = ClusterState(CoreSettings()), Job(JobSpec("job", ("train.py",), "."))
    with pytest.raises(AssertionError, match="job job cannot go from pending to running: because"):
        state.set_phase(job, JobPhase.RUNNING, "because")
    assert job.phase is JobPhase.PENDING
    assert state.take() == []


def test_the_diagram_is_fresh() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "phases.py"))
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert made["page"](text) == text, "the diagram of phases is stale: python docs/phases.py"
    assert made["page"](text.replace("running --> leaving", "")) == text
