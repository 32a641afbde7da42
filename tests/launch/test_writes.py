"""Which variables of the environment a script sets, once libraries have read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import os
from holdfast.launch import reads
os.environ["GIVEN"] = "then"
reads.watch_writes({"GIVEN": "then", "ABSENT": None}, lambda name: print("late", name))
"""


def told(text: str) -> list[str]:
    """What is reported of a script with this text: audit hooks stay until the end of their process."""
    found = subprocess.run(
        [sys.executable, "-c", HEAD + text], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return found.stdout.splitlines()


def test_a_variable_that_is_set_otherwise_is_told_once() -> None:
    assert told("os.environ.update(GIVEN='now')\nos.environ['GIVEN'] = 'later'") == ["late GIVEN"]
    assert told("os.environ['ABSENT'] = 'now'") == ["late ABSENT"]
    assert told("os.environ['GIVEN'] = 'then'\nos.environ['OTHER'] = 'now'") == []


def test_one_that_is_removed_is_told_when_a_module_is_imported_without_it() -> None:
    assert told("del os.environ['GIVEN']\nimport wave") == ["late GIVEN"]
    assert told("os.environ['ABSENT'] = 'now'\ndel os.environ['ABSENT']\nimport wave") == ["late ABSENT"]


def test_an_environment_that_is_cleared_and_put_back_is_no_change() -> None:
    """As accelerate does for each Accelerator."""
    cleared = "kept = os.environ.copy()\nos.environ.clear()\nos.environ.update(kept)\nimport wave"
    assert told(cleared) == []
