"""A timeline, iteration times, and what `holdfast doctor` says of them."""

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
    """What a command prints that succeeds."""

    def run(*words: object) -> str:
        assert main(["doctor", *map(str, words)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The line that a command is refused with: it names the file, and ends with exit code 2."""

    def run(*words: object) -> str:
        assert main(["doctor", *map(str, words)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("holdfast doctor: ")
        assert printed.err.count("\n") == 1 and len(printed.err) < 600
        return printed.err

    return run
