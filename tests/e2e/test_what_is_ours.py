"""The folders that people name to Holdfast may hold what is theirs: it is refused or left, never removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agent.host.paths import Paths
from agent.ranks.members import MemberMemory
from controlplane.cli.errors import CliError
from controlplane.cli.exec import copy
from controlplane.cli.local.layout import make_layout, remove_traces, sweep
from controlplane.cli.local.run import forget
from controlplane.daemon.journal import stack_archive
from controlplane.daemon.journal.recording import KEPT, _open
from controlplane.settings import AgentSettings, SettingsError
from holdfast import removal

if TYPE_CHECKING:
    from pathlib import Path


def precious(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    return path


@pytest.mark.parametrize("name", ["lib/holdfast/notes.py", "lib/controlplane/notes.py", "bin/holdfast"])
def test_copy_to_replaces_nothing_that_it_has_not_put_there(tmp_path: Path, name: str) -> None:
    kept = precious(tmp_path / name)
    with pytest.raises(CliError, match="not put there by `holdfast exec --copy-to`"):
        copy(tmp_path)
    assert kept.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name.partition("/")[0]], "nothing was begun"


def test_copy_to_replaces_its_own_copy(tmp_path: Path) -> None:
    beside = precious(tmp_path / "lib" / "mine" / "notes.py")
    for _ in range(2):
        assert copy(tmp_path) == 0
        stale = precious(tmp_path / "lib" / "holdfast" / "stale.py")
    assert copy(tmp_path) == 0
    assert (stale.exists(), beside.exists()) == (False, True)
    assert os.access(tmp_path / "bin" / "holdfast", os.X_OK)


def paths_in(folder: Path) -> Paths:
    return Paths.of(AgentSettings(node="n0", run_dir=str(folder / "run"), shm_dir=str(folder / "shm")), "n0")


def test_an_agent_takes_no_memory_that_holds_files_of_others(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    kept = [precious(paths.memory / name) for name in ("notes.json", "train.board")]
    with pytest.raises(SettingsError, match=r"notes\.json, train\.board; move that away, or .* --shm-dir"):
        paths.create()
    assert all(path.exists() for path in kept)


def test_an_agent_removes_its_own_files_alone(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    paths.create()
    kept = [precious(paths.memory / name) for name in ("notes.json", "copies.txt")]
    torn = [precious(paths.memory / f"job.7.{kind}") for kind in ("json", "board", "arena")]
    assert MemberMemory(paths).recall() == []
    assert not any(path.exists() for path in torn)
    paths.remove()
    assert all(path.exists() for path in kept)


def test_a_state_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    kept = [precious(tmp_path / name) for name in ("etcd/db", "journal.jsonl", "notes")]
    with pytest.raises(CliError, match=r"did not make: etcd, journal\.jsonl, notes; .*--state-dir"):
        make_layout("j", str(tmp_path))
    assert all(path.exists() for path in kept)


def test_a_state_folder_of_the_version_before_is_taken_up(tmp_path: Path) -> None:
    for name in ("etcd/member/db", "journal.jsonl", "lock", "cluster.json", "n0.json", "logs/n0.log"):
        precious(tmp_path / "state" / name)
    layout = make_layout("j", str(tmp_path / "state"), shm_dir=str(tmp_path))
    forget(layout)
    assert not (layout.state / "etcd").exists() and (layout.state / "lock").exists()


def test_folders_in_memory_that_are_not_ours_outlive_a_run(tmp_path: Path) -> None:
    layout = make_layout("j", str(tmp_path / "state"), shm_dir=str(tmp_path / "shm"))
    kept = precious(layout.shm("n0") / "notes")
    ours = layout.shm("n1")
    ours.mkdir()
    removal.claim(ours)
    precious(ours / "job.1.arena")
    assert sweep(layout) == []
    remove_traces(layout)
    assert (kept.exists(), ours.exists()) == (True, False)


def test_folders_beside_a_journal_lose_nothing_of_others(tmp_path: Path) -> None:
    reigns, shelf = tmp_path / "journal.reigns", tmp_path / "stacks"
    kept = [precious(reigns / f"notes{number}.jsonl") for number in range(9)]
    kept += [precious(shelf / f"notes{number}.txt") for number in range(stack_archive.FILES_KEPT + 9)]
    assert _open(reigns, 3, KEPT) is None, "nothing is recorded there"
    stack_archive._write(shelf / "job-1-1.txt", "stacks")
    assert all(path.exists() for path in kept)
