"""`holdfast doctor JOB --tune`: what it prints of a job's report, and what it refuses."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controlplane.cli.doctor import tuning
from controlplane.cli.main import main
from controlplane.simulation.failures import Outage
from tests.analysis.live.jobs import job, opened, watched
from tests.analysis.proposals.played import failing, ran, reported
from tests.analysis.proposals.test_heartbeat import ten_lost
from tests.analysis.proposals.test_in_steps import SMALL, STEP, bound, recorded, roomy
from tests.analysis.proposals.test_loader import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT = Path(__file__).parents[3] / "docs" / "diagnosis" / "tuning.md"
FAILURES = 20
SPENT = failing(40.0, 4.0, 3600.0, 60.0, FAILURES)


@functools.cache
def _processes_died() -> dict[str, Any]:
    """What is measured where 20 processes died in twenty hours, and no node fell silent."""
    return ran(
        *[Outage(at % 4, 3400.0 * (1 + at), 3400.0 * (1 + at), "exit") for at in range(20)], hours=20
    ).parts()


@functools.cache
def of_a_slow_rank() -> dict[str, object]:
    """The report of a job in which rank 5 of 8 was slow."""
    seen = watched(job(8, own=lambda rank, window: 1.5 if rank == 5 and window > 9 else 1.0))
    return reported(SPENT, *opened(seen), newest=seen[-1]) | _processes_died()


def processes_die_often() -> dict[str, Any]:
    """The report of a job in which a process died every 80 s."""
    dead = [Outage(at % 4, 300 + 80 * at, 300 + 80 * at, "exit") for at in range(40)]
    return reported(SPENT) | ran(*dead, hours=1.0, timeout_s=15.0).parts()


EXAMPLES: dict[str, Callable[[], dict[str, Any]]] = {
    "heartbeat": lambda: reported(SPENT) | ten_lost(),
    "loader": lambda: waiting(1.0, data_s=4.0, cpu_limit=12.0),
    "bucket size": lambda: bound(recorded(*STEP)),
    "micro-batch": lambda: roomy(30.0, SMALL),
    "warm spares": processes_die_often,
}
"""A report for each kind of proposal of which the documentation shows one."""


@pytest.mark.parametrize("setting", EXAMPLES)
def test_the_documentation_shows_each_kind_of_proposal_as_it_is_printed(setting: str) -> None:
    parts = tuning.shown("table", EXAMPLES[setting](), FAILURES).split("\n\n")
    (shown,) = [part for part in parts if part.startswith(f"{setting}: gains")]
    assert f"\n{shown}\n" in DOCUMENT.read_text(), shown


def test_the_example_of_the_documentation_is_what_is_printed() -> None:
    shown = tuning.shown("table", of_a_slow_rank(), FAILURES)
    assert shown.startswith("job j: each gain is a share of the job's time, of that proposal alone")
    assert f"```\n$ holdfast doctor j --tune\n{shown}\n```" in DOCUMENT.read_text()


def test_json_and_yaml_say_the_same() -> None:
    told = json.loads(tuning.shown("json", of_a_slow_rank(), FAILURES))
    assert yaml.safe_load(tuning.shown("yaml", of_a_slow_rank(), FAILURES)) == told
    assert list(told) == ["job", "note", "proposals", "not_proposed"]
    assert [each["setting"] for each in told["proposals"]] == ["placement", "snapshots"]
    fields = ["setting", "action", "gain_ratio", "at_most", "confidence", "changes", "reason", "evidence"]
    assert list(told["proposals"][0]) == [*fields, "alternatives"]
    assert told["proposals"][1]["changes"] == [{"name": "--snapshot-every", "from": "10", "to": "40"}]
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
