"""Jobs that others have recorded and published: `holdfast doctor` finds what their publishers planted.

The recordings are no part of the project: without `shared/traces` beside it these tests are skipped."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]
PLACES = [folder / "shared" / "traces" for folder in (REPOSITORY, *REPOSITORY.parents[:2])]
TRACES = next((place for place in PLACES if place.is_dir()), PLACES[0])
TIMELINE = TRACES / "step-timelines" / "AR.parquet"
RECORDS = TRACES / "flight-recorder"


@pytest.mark.skipif(not TIMELINE.exists(), reason="no shared/traces/step-timelines beside the project")
@pytest.mark.skipif(find_spec("pyarrow") is None, reason="no pyarrow to read Parquet")
def test_the_slowed_worker_of_a_published_timeline_is_named(said: Callable[..., str]) -> None:
    found = json.loads(said("--timeline", TIMELINE, "--layout", TIMELINE.with_suffix(".yaml"), "--json"))
    workers = json.loads(TIMELINE.with_name("AR.truth-worker.json").read_text())
    stages = json.loads(TIMELINE.with_name("AR.truth-stage.json").read_text())
    assert found["slowdown"] == pytest.approx(workers["tori"] / workers["tideal"], rel=0.03)
    assert found["worker_share"] == pytest.approx(workers["Mw"], abs=0.03)
    assert found["stage_share"] == pytest.approx(stages["Ms"], abs=0.03)
    (finding,) = found["findings"]
    assert finding["kind"] == "slow_worker"
    assert finding["subject"] == {"dp_rank": 0, "stage": 0, "rank": 0}


def judged(said: Callable[..., str], name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(said("--flight-recorder", RECORDS / name, "--json"))
    assert {each["subject"]["rank"] for each in result["findings"]} == ranks(result["culprits"])
    return result


def ranks(named: list[dict[str, Any]]) -> set[int]:
    return {each["rank"] for each in named}


@pytest.mark.skipif(not RECORDS.is_dir(), reason="no shared/traces/flight-recorder beside the project")
def test_the_ranks_whose_interpreter_was_held_are_named(said: Callable[..., str]) -> None:
    result = judged(said, "lock_gil_1st")
    assert ranks(result["culprits"]) == {9, 14} and result["undetermined"] == []
    assert {each["kind"] for each in result["culprits"]} == {"not_arrived"}


@pytest.mark.skipif(not RECORDS.is_dir(), reason="no shared/traces/flight-recorder beside the project")
def test_the_ranks_whose_gpu_failed_are_named(said: Callable[..., str]) -> None:
    """The publishers planted both and name 12 alone: 14 takes evidence of its own."""
    result = judged(said, "gpu_error_1st")
    blamed = {each["rank"]: each for each in result["culprits"]}
    assert {12} <= set(blamed) <= {12, 14}
    assert ranks(result["undetermined"]) <= {14}
    for rank, each in blamed.items():
        assert each["evidence"]["completed_elsewhere_count"] >= 1, rank
        assert "never completed it, while it has completed on rank" in each["reason"], rank
