"""A run of this user is found by its card; what is no card of a living run is not taken for one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.local.finding import local_runs
from controlplane.cli.main import tree
from holdfast.pids import born

if TYPE_CHECKING:
    from pathlib import Path

ME = [os.getpid(), born(os.getpid())]


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_COORDINATOR", raising=False)
    return tmp_path / "holdfast"


def card(folder: Path, job: str, **changes: Any) -> None:
    folder.mkdir(parents=True)
    found = {"job": job, "coordinator": f"127.0.0.1:{4000 + len(job)}", "processes": {"coordinator": ME}}
    (folder / "cluster.json").write_text(json.dumps(found | changes))


def asked(*words: str) -> str:
    """Whom a command would ask."""
    found: str = tree().parse_args([*words]).coordinator
    return found


def test_the_only_run_is_asked_and_a_flag_or_the_variable_comes_first(
    states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked("status") == "127.0.0.1:7070"
    card(states / "once" / "demo", "demo")
    assert local_runs() == {"demo": "127.0.0.1:4004"}
    assert asked("status") == asked("logs", "demo") == "127.0.0.1:4004"
    assert asked("status", "--coordinator", "h:1") == "h:1"
    assert asked("submit", "x.py") == "127.0.0.1:7070", "no job is given to the run of another"
    monkeypatch.setenv("HOLDFAST_COORDINATOR", "h:2")
    assert asked("status") == "h:2"


def test_of_several_runs_none_is_chosen(states: Path) -> None:
    card(states / "a", "a")
    card(states / "bb", "bb")
    with pytest.raises(UsageError, match=r"2 runs.*127.0.0.1:4001 for job a; 127.0.0.1:4002 for job bb"):
        asked("status")
    assert asked("status", "--coordinator", "h:1") == "h:1"


def test_what_no_living_run_has_left_is_passed_over(states: Path) -> None:
    card(states / "dead", "dead", processes={"coordinator": [ME[0], ME[1] - 1]})
    card(states / "odd", "odd", processes={"coordinator": "x"})
    card(states / "starts", "starts", coordinator="")
    (states / "cut").mkdir()
    (states / "cut" / "cluster.json").write_text('{"job": "cut", "coor')
    assert local_runs() == {} and asked("status") == "127.0.0.1:7070"
