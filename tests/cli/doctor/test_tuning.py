"""`holdfast doctor JOB --tune`: what it prints of a job's report, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from controlplane.cli.doctor import tuning
from controlplane.cli.main import main
from tests.analysis.live.jobs import job, opened, watched
from tests.analysis.proposals.played import failing, reported

DOCUMENT = Path(__file__).parents[3] / "docs" / "diagnosis.md"
FAILURES = 20
SPENT = failing(40.0, 4.0, 3600.0, 60.0, FAILURES)


def of_a_slow_rank() -> dict[str, object]:
    """The report of a job in which rank 5 of 8 was slow."""
    found = opened(watched(job(8, own=lambda rank, window: 1.5 if rank == 5 and window > 9 else 1.0)))
    return reported(SPENT, *found)


def test_the_example_of_the_documentation_is_what_is_printed() -> None:
    shown = tuning.shown("table", of_a_slow_rank(), FAILURES)
    assert shown.startswith("job j: each gain is a share of the job's time, of that proposal alone")
    assert f"```\n$ holdfast doctor j --tune\n{shown}\n```" in DOCUMENT.read_text()


def test_json_and_yaml_say_the_same() -> None:
    told = json.loads(tuning.shown("json", of_a_slow_rank(), FAILURES))
    assert yaml.safe_load(tuning.shown("yaml", of_a_slow_rank(), FAILURES)) == told
    assert list(told) == ["job", "note", "proposals", "not_proposed"]
    assert [each["setting"] for each in told["proposals"]] == ["placement", "snapshots"]
    fields = ["setting", "action", "gain_ratio", "at_most", "reason", "evidence", "alternatives"]
    assert list(told["proposals"][0]) == fields
    assert told["proposals"][0]["evidence"]["finding"].startswith("slow_rank:rank 5 ")
    assert {"setting", "reason"} == set(told["not_proposed"][0])


def test_nothing_to_propose_is_said_with_the_reason() -> None:
    shown = tuning.shown("table", {"job": "j", "findings": []}, None)
    assert shown.splitlines()[0] == "job j: nothing to propose"
    assert "all: not measured: the report has no account of the job's time" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--tune"], "--tune is for a running job: name the job"),
        (["--tune", "--iterations", "x.csv"], "--tune is for a running job: name the job"),
        (["j", "--tune", "--mute", "slow_rank:x"], "--tune and --mute given: give one of them"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    assert problem in capsys.readouterr().err
