"""Checkpoints that are there already when a run begins: gone on from, left beside, or adopted."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.local.child import Child, ChildFailed
from controlplane.cli.local.layout import make_layout, sweep
from controlplane.cli.local.lives import Beginning, current_life, passed_over, remember
from controlplane.core.records.model import JobSpec
from controlplane.exit_codes import REFUSED
from holdfast.checkpoint.format import names
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_lost_state_folder_is_told_of_and_adopting_keeps_the_name(tmp_path: Path) -> None:
    layout = make_layout("j", str(tmp_path / "state"), once=False, shm_dir=str(tmp_path))
    spec, plain = JobSpec("j", ("x",), str(tmp_path), storage=f"file://{tmp_path}/s"), Beginning()
    first = current_life(layout, spec, plain, knows_nothing=True)
    assert first == spec and passed_over(layout, spec, first, plain) == ""
    Store.open(spec.storage).put(names.manifest("j", "10-1"), b"{}")
    (layout.state / "etcd").mkdir(parents=True)
    remember(layout, first)
    assert current_life(layout, spec, plain, knows_nothing=True) == spec, "etcd knows them"
    shutil.rmtree(layout.state)
    beside = current_life(layout, spec, plain, knows_nothing=True)
    assert beside.job == "j-life1"
    assert "give --adopt to continue from them" in passed_over(layout, spec, beside, plain)
    adopting = Beginning(adopt=True)
    assert current_life(layout, spec, adopting, knows_nothing=True) == spec
    Store.open(spec.storage).put(names.manifest("j-life1", "20-1"), b"{}")
    assert current_life(layout, spec, adopting, knows_nothing=True).job == "j-life1", "the last life"
    fresh = Beginning(fresh=True)
    anew = current_life(layout, spec, fresh, knows_nothing=True)
    assert anew.job == "j-life2" and passed_over(layout, spec, anew, fresh) == ""


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that has `agent` in its command line, as ssh-agent has."""
    with subprocess.Popen([sys.executable, "-c", "input()", "ssh-agent"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_whoever_has_the_pid_of_a_launcher_that_is_gone_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    layout = make_layout("j", str(tmp_path / "state"), shm_dir=str(tmp_path))
    folder = layout.node_dir("n0")
    folder.mkdir(parents=True)
    (folder / "launcher.pid").write_text(str(stranger.pid))
    assert sweep(layout) == [] and not folder.exists()
    assert stranger.poll() is None


async def test_a_daemon_that_does_not_serve_in_time_is_named(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    child = Child("n0", lambda: argv, tmp_path / "n0.json", tmp_path / "n0.log")
    keeper = asyncio.create_task(child.keep())
    try:
        with pytest.raises(ChildFailed, match=r"n0 was not ready within 1 s. From .*n0\.log"):
            await child.served(keeper, 1.0)
    finally:
        await child.stop(5.0)
        await keeper


async def test_an_agent_that_is_refused_for_good_is_not_started_again(tmp_path: Path) -> None:
    """It had written its address file, as an agent does before it hears of the refusal."""
    ready = tmp_path / "n0.json"
    script = (
        "import pathlib, sys, time\n"
        f"pathlib.Path({str(ready)!r}).write_text('{{}}'); time.sleep(0.5)\n"
        f"print('the timeouts contradict', file=sys.stderr); sys.exit({REFUSED})"
    )
    child = Child("n0", lambda: (sys.executable, "-c", script), ready, tmp_path / "n0.log")
    with pytest.raises(ChildFailed, match=r"n0 is refused for good[^$]*the timeouts contradict"):
        await asyncio.wait_for(child.keep(), 60)
    assert child.starts == 1
