"""Provide a timeline and iteration times, and run `holdfast doctor` on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.diagnosis.fleets import fleet
from controlplane.analysis.steps.records import COLUMNS
from controlplane.cli.main import main
from tests.analysis.files import steps, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    return write(tmp_path / "steps.csv", COLUMNS, steps())


@pytest.fixture
def times(tmp_path: Path) -> Path:
    rows = fleet("emerging", 3).samples
    return write(tmp_path / "times.csv", ("worker", "time", "seconds"), rows)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must succeed, and return its output."""

    def run(*words: object) -> str:
        assert main(["doctor", *map(str, words)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused with exit code 2, and return its one line, which names the file."""

    def run(*words: object) -> str:
        assert main(["doctor", *map(str, words)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("holdfast doctor: ")
        assert printed.err.count("\n") == 1 and len(printed.err) < 600
        return printed.err

    return run
