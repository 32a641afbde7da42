"""What a launcher knows of processes: other users', later ones of the same pid, and its own end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agent.daemon.launcher_client import LauncherClient
from agent.host.paths import Paths
from holdfast.launch import linux
from holdfast.launch.launcher import Launcher
from holdfast.launch.processes import MemberProcess
from tests.agent.support import folder

if TYPE_CHECKING:
    from holdfast.ipc.messages.launcher import LauncherMessage

FOREIGN = """
import os, sys, time
from holdfast.launch import linux
linux.become_subreaper()
leader = os.fork()
if not leader:
    os.setsid()
    if not os.fork():
        os.setuid(2)
        time.sleep(600)
    os._exit(0)
os.waitpid(leader, 0)
orphan, = linux.children()
while os.stat(f"/proc/{orphan}").st_uid != 2:
    time.sleep(0.01)
os.seteuid(1)
linux.kill_session(leader)
assert not linux.signal_group(leader, 9)
os.seteuid(0)
os.kill(orphan, 9)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_a_child_of_another_user_stops_no_reaping() -> None:
    """As what a script starts by sudo. `seteuid` alone lets neither of two strangers signal the other."""
    subprocess.run([sys.executable, "-c", FOREIGN], check=True, timeout=60)


def test_a_signal_reaches_a_child_that_leads_no_group_yet() -> None:
    """A member is known by its pid a moment before it makes its session: a kill in between is no loss."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert linux.signal_group(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL


async def test_the_end_of_an_orphan_is_not_taken_for_that_of_a_later_member() -> None:
    """Pids come again. Only while a fork is awaited may an unknown end be that of a member."""
    with folder() as path:
        launcher = Launcher(path, 60.0)
        orphan = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
        assert await orphan.wait() == 0
        launcher._exited(orphan.pid, 0, None, 1)
        process = MemberProcess("job.1", lambda *_: None)
        request = await process.open(str(path / "log"))
        launcher._processes["job.1"] = process
        launcher._zygote.fork(request)
        launcher._on_zygote({"op": "forked", "member": "job.1", "pid": orphan.pid})
        assert process.end is None, "the new process of that pid lives"
        launcher._zygote.close()
        await process.closed()


async def test_a_launcher_that_dies_while_it_is_spoken_to_is_replaced() -> None:
    with folder() as base:
        paths = Paths(base, base / "memory")

        def die(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """As SIGKILL does: the kernel closes the socket that listens after those that it gave."""
            writer.close()
            paths.launcher.unlink()

        dying = await asyncio.start_unix_server(die, paths.launcher)
        received: list[LauncherMessage] = []
        dropped: list[str] = []
        client = LauncherClient(paths, 60, received.append, dropped.append)
        await client.open()
        dying.close()
        assert not dropped
        assert [message.op for message in received] == ["hello"]
        assert int((base / "launcher.pid").read_text()) != os.getpid()
        following = asyncio.create_task(client.run(lambda: None))
        await client.end()
        await following
        assert not paths.launcher.exists()
