"""The judge of framework cases: what it lets pass, and what it finds; and the cases themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.frameworks import judging, log_scripts
from tests.frameworks.case import PACKAGES, Case, Kill, by_hand
from tests.frameworks.cases import CASES
from tests.frameworks.environment import ROOT
from tests.frameworks.install import choices, kept, wanted
from tests.frameworks.log_cases import LOG_CASES, LogCase
from tests.frameworks.log_readers import Log
from tests.frameworks.logging_cases import compared

if TYPE_CHECKING:
    from pathlib import Path

ENDS = {rank: {"weights": {"a": "1", "b": "2"}, "log": {"0.loss": "3"}} for rank in (0, 1)}
SAVED = {"event": "on_save", "step": 4, "rank": 0}
BEGUN = {"event": "on_step_begin", "step": 4, "rank": 0}


def test_equal_ends_and_events_are_exact() -> None:
    assert judging.bits(ENDS, ENDS) == []
    assert judging.events([SAVED, BEGUN], [SAVED, BEGUN, BEGUN], {"on_step_begin"})["exact"]


@pytest.mark.parametrize(
    ("killed", "words"),
    [
        ({0: ENDS[0]}, "rank 1 came to no end in the killed run"),
        ({**ENDS, 1: {"weights": {"a": "1", "b": "9"}, "log": {"0.loss": "3"}}}, "rank 1, weights: b"),
        ({**ENDS, 0: {"weights": {"a": "1", "b": "2"}, "log": {}}}, "rank 0, log: 0.loss"),
    ],
)
def test_other_bits_are_named(killed: judging.Ends, words: str) -> None:
    assert judging.bits(ENDS, killed) == [words]


def test_ends_without_weights_prove_nothing() -> None:
    empty: judging.Ends = {0: {"weights": {}}}
    assert judging.bits(empty, empty) == ["rank 0: no weights were found to compare"]


def test_a_plain_run_needs_the_samples_and_rates_of_its_steps() -> None:
    words = ["rank 0: no rates were found to compare", "rank 1: no rates were found to compare"]
    assert judging.bits(ENDS, ENDS, ("plain", "undisturbed"), ("weights", "rates")) == words
    lost = {0: ENDS[0]}
    assert judging.bits(lost, ENDS, ("plain", "undisturbed")) == ["rank 1 came to no end in the plain run"]


def test_each_framework_has_a_case_of_a_plain_run() -> None:
    plain = [case for case in CASES if case.plain]
    assert {case.framework for case in plain} == set(PACKAGES)
    assert not [case.name for case in plain if "holdfast" in case.unported()]


@pytest.mark.parametrize(
    ("got", "part", "said"),
    [
        ([SAVED, SAVED], "repeated", "on_save, step 4, rank 0"),
        ([], "missing", "on_save, step 4, rank 0"),
        ([{**SAVED, "rank": 1}], "missing", "on_save, step 4, rank 0"),
    ],
)
def test_events_that_took_effect_twice_or_never_are_named(
    got: list[dict[str, Any]], part: str, said: str
) -> None:
    found = judging.events([SAVED], got, ())
    assert not found["exact"]
    assert found[part] == [said]


def test_a_run_in_which_nothing_was_recorded_is_not_exact() -> None:
    assert not judging.events([], [], ())["exact"]


@pytest.mark.parametrize("case", [case for case in CASES if case.changes], ids=lambda case: case.name)
def test_a_script_is_ported_by_one_to_five_lines(case: Case) -> None:
    assert 1 <= case.changed_lines <= 5
    assert "holdfast" in case.ported()
    assert "holdfast" not in case.script.read_text()


def test_a_line_to_be_changed_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch\n")
    case = Case("x", "hf", tmp_path / "script.py", Kill("forward", 1), (), (("import numpy", "import os"),))
    with pytest.raises(ValueError, match="it has 'import numpy' 0 times, not once"):
        case.ported()


def test_a_script_by_hand_is_of_the_framework_that_it_imports_first(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import lightning\nimport transformers\nfrom holdfast import Session\n")
    case = by_hand(script, 7)
    assert (case.framework, case.kill.step, case.changed_lines) == ("lightning", 7, 1)
    assert case.again >= {"on_step_begin", "on_train_start", "on_validation_start", "save_state"}
    script.write_text("import torch\n")
    with pytest.raises(ValueError, match="imports none of hf, lightning, accelerate"):
        by_hand(script, 7)


def test_an_index_without_the_pinned_version_is_asked_for_the_same_major_one() -> None:
    assert choices("lightning", "2.6.6") == ["lightning==2.6.6", "lightning>=2,<3"]
    trainers, loggers = {"transformers", "accelerate", "lightning"}, {case.library for case in LOG_CASES}
    needed = {case.needs for case in CASES if case.needs}
    assert {name.partition("[")[0] for name, _ in wanted()} == trainers | loggers | needed


def test_only_what_is_installed_keeps_its_version() -> None:
    assert kept("torch==2.13.0\nno_such_package==1.0\nPyYAML==6.0.3\n") == "torch==2.13.0\nPyYAML==6.0.3\n"


def test_a_log_is_compared_with_the_undisturbed_one() -> None:
    wanted_points = [(step, step / 3) for step in range(log_scripts.STEPS)]
    notes = [f"generation {number}: 2 ranks" for number in (2, 3, 4, 5)]
    assert compared(wanted_points, Log(wanted_points, notes), "mlflow") == []
    twice = [*wanted_points[1:], (7, 7 / 3), (59, 59 / 3)]
    assert compared(wanted_points, Log(twice, notes), "mlflow") == [
        "steps twice: [7, 59]",
        "steps missing: [0]",
    ]
    other = [*wanted_points[:-1], (59, 1.0)]
    assert compared(wanted_points, Log(other, notes), "mlflow") == [f"step 59: 1.0, not {59 / 3}"]
    assert compared(wanted_points, Log(wanted_points, notes[:2], {}, ["2 runs"]), "mlflow") == [
        "2 runs",
        "notes of generations [2, 3], not 2 to 5",
    ]


@pytest.mark.parametrize(
    "case", [case for case in LOG_CASES if case.down is None], ids=lambda case: case.name
)
def test_kills_fit_into_the_recipe_of_a_logger(case: LogCase) -> None:
    assert "OpenLog.write = write" in log_scripts.killed(case.section)
    assert f"import {case.library}" in log_scripts.recipe(case.section).replace("from ", "import ") or (
        case.library == "tensorboard"
    )


def test_what_ci_runs_has_a_case_of_each_framework() -> None:
    names = re.search(r"^MID_EPOCH = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert names is not None
    found = [case.framework for case in CASES if case.name in names[1].split()]
    assert sorted(found) == sorted(PACKAGES) and len(names[1].split()) == len(found)
