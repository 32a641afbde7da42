"""Help is short where a command has very many flags, and all of it is there for who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.main import main

if TYPE_CHECKING:
    import pytest


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_run_has_a_short_help_and_a_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = shown(capsys, "run", "--help"), shown(capsys, "run", "--help-all")
    assert "--nproc-per-node" in short and "--storage" in short and "SCRIPT" in short
    assert "--grow-after-s" in long and "--grow-after-s" not in short
    assert len(short.splitlines()) < 60 < len(long.splitlines())
    more = int(short.splitlines()[-1].split()[0])
    assert short.endswith(" more flags: holdfast run --help-all\n") and more > 40
    assert shown(capsys, "run", "--help-all") == long, "nothing of it is hidden for good"


def test_the_help_of_other_commands_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert "more flags" not in shown(capsys, "logs", "--help")
