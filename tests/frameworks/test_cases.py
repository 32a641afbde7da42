"""The judge of framework cases: what it lets pass, and what it finds; and the cases themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.frameworks import judging
from tests.frameworks.cases import CASES, Case, Kill, by_hand
from tests.frameworks.install import choices, wanted

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
    script.write_text("import torch\n")
    with pytest.raises(ValueError, match="imports none of hf, lightning"):
        by_hand(script, 7)


def test_an_index_without_the_pinned_version_is_asked_for_the_same_major_one() -> None:
    assert choices("lightning", "2.6.6") == ["lightning==2.6.6", "lightning>=2,<3"]
    assert {name for name, _ in wanted()} == {"transformers", "accelerate", "lightning"}
