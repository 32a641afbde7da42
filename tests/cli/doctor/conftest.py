"""Run `holdfast doctor` on folders of dumps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.main import main
from tests.sdk.conftest import zygote

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["zygote"]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], dict[str, Any]]:
    """The answer of a command that must succeed."""

    def run(folder: Path) -> dict[str, Any]:
        assert main(["doctor", "--flight-recorder", str(folder), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """The one line of a command that must be refused with exit code 2."""

    def run(folder: Path) -> str:
        assert main(["doctor", "--flight-recorder", str(folder), "--json"]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        return printed.err

    return run
