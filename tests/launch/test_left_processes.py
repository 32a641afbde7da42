"""What a member leaves behind in sessions of its own ends with it, and nothing else does."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.agent.support import LauncherProcess, alive, folder, until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = """
import os, subprocess, time
sleep = ["sleep", "600"]
apart = "setsid sleep 600 >/dev/null & echo $!"
server = subprocess.Popen(sleep, start_new_session=True)
daemon = subprocess.check_output(["sh", "-c", apart])
shell = subprocess.Popen(["sh", "-c", f"{apart}; wait"], start_new_session=True, stdout=subprocess.PIPE)
below = shell.stdout.readline()
bare = {name: value for name, value in os.environ.items() if name != "HOLDFAST_MEMBER"}
theirs = subprocess.Popen(sleep, start_new_session=True, env=bare)
print(server.pid, int(daemon), int(below), theirs.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def launcher() -> Iterator[LauncherProcess]:
    with folder() as path:
        process = LauncherProcess(path)
        yield process
        process.close()


def _started(launcher: LauncherProcess, member: str) -> tuple[list[int], int]:
    """The processes that this member has started, and the one among them that is not to end with it."""
    launcher.spawn(member)
    launcher.run(member, "script.py", env={"HOLDFAST_MEMBER": member})
    launcher.client.until("running", member=member)
    until_sync(lambda: launcher.output(member).endswith("\n"), "the script's children")
    *left, theirs = map(int, launcher.output(member).split())
    assert len(left) == 3
    return left, theirs


def test_what_a_member_leaves_in_sessions_of_its_own_ends_with_it(launcher: LauncherProcess) -> None:
    launcher.script(SCRIPT)
    dying, theirs = _started(launcher, "job.1")
    others, _ = _started(launcher, "job.2")
    launcher.client.say(op="signal", member="job.1", signal=int(signal.SIGKILL))
    launcher.client.until("exited", member="job.1")
    until_sync(lambda: not any(map(alive, dying)), "the end of what job.1 has left")
    note = launcher.client.until("note")["message"]
    assert note.startswith("job.1 has ended and left `sleep 600` (process ")
    assert all(map(alive, [*others, theirs])), "a living member's, and what hides its origin, run on"
    launcher.client.say(op="end")
    launcher.process.wait(60)
    assert not any(map(alive, [*others, theirs])), "all ends with the launcher"


def test_a_member_of_the_same_name_in_an_outer_cluster_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster that is started by a rank: what its launcher has inherited says nothing of children."""
    monkeypatch.setenv("HOLDFAST_MEMBER", "job.1")
    with folder() as path:
        launcher = LauncherProcess(path)
        launcher.script(SCRIPT)
        _started(launcher, "job.1")
        launcher.client.say(op="signal", member="job.1", signal=int(signal.SIGKILL))
        launcher.client.until("exited", member="job.1")
        launcher.spawn("job.2")
        pid = launcher.client.until("warm", member="job.2")["pid"]
        with open(f"/proc/{pid}/environ") as environment:
            assert "HOLDFAST_MEMBER" not in environment.read()
        assert os.getpgid(pid) == pid
        launcher.close()
