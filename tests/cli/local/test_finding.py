"""A run of this user is found by its card; what is no card of a living run is not taken for one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.local.finding import ELSEWHERE, forget, local_runs, tell_where
from controlplane.cli.local.layout import layout_at
from controlplane.cli.main import main, tree
from holdfast.pids import born

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.cli.local.layout import LocalPaths

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
    assert local_runs() == [("demo", "127.0.0.1:4004")]
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


def test_files_are_judged_however_many_runs_there_are(
    states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card(states / "a", "a")
    card(states / "bb", "bb")
    times = tmp_path / "times.csv"
    times.write_text("worker,time,seconds\n" + "".join(f"{at % 3},{at},1\n" for at in range(90)))
    assert (
        main(["doctor", "--iterations", str(times)]) == 0 and "nobody is to blame" in capsys.readouterr().out
    )
    assert main(["doctor", "a"]) == 2
    assert "2 runs are on this machine: give 127.0.0.1:4001 for job a" in capsys.readouterr().err


def test_what_no_living_run_has_left_is_passed_over(states: Path) -> None:
    card(states / "dead", "dead", processes={"coordinator": [ME[0], ME[1] - 1]})
    card(states / "odd", "odd", processes={"coordinator": "x"})
    card(states / "starts", "starts", coordinator="")
    (states / "cut").mkdir()
    (states / "cut" / "cluster.json").write_text('{"job": "cut", "coor')
    assert local_runs() == [] and asked("status") == "127.0.0.1:7070"


def layout(state: Path, job: str = "j") -> LocalPaths:
    """The layout of a run that has its state in this folder, and has written its card."""
    made = layout_at(job, state)
    card(state, job)
    return made


def test_a_run_with_a_state_folder_of_its_own_is_found_until_it_ends(states: Path, tmp_path: Path) -> None:
    one = layout(tmp_path / "own")
    assert asked("status") == "127.0.0.1:7070"
    for _ in range(2):  # the card is written again whenever a daemon is started again
        tell_where(one)
        assert asked("status") == "127.0.0.1:4001"
    forget(one)
    assert local_runs() == []
    forget(one)


def test_two_runs_of_one_name_are_two(states: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        tell_where(layout(tmp_path / name))
    with pytest.raises(UsageError, match="2 runs"):
        asked("status")


def test_links_of_killed_runs_are_passed_over_and_go(states: Path, tmp_path: Path) -> None:
    dead = layout(tmp_path / "dead")
    tell_where(dead)
    (dead.state / "cluster.json").unlink()
    assert local_runs() == []
    tell_where(layout(tmp_path / "other"))
    assert [link.readlink() for link in (states / ELSEWHERE).iterdir() if link.is_symlink()] == [
        tmp_path / "other"
    ]


def test_a_state_among_all_states_needs_no_link(states: Path) -> None:
    tell_where(layout(states / "j"))
    assert not (states / ELSEWHERE).exists() and local_runs() == [("j", "127.0.0.1:4001")]


def test_a_home_that_takes_no_link_is_said_and_ends_nothing(
    states: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    states.write_text("a file")
    tell_where(layout(tmp_path / "own"))
    assert "commands need --coordinator to find this run" in caplog.text
