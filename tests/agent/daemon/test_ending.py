"""The end of a job, as an agent sees to it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from controlplane.core.records import effects
from controlplane.core.records.model import MemberPhase
from tests.agent.support import AgentProcess, Leader, alive, folder, launch, spec, until

SAVES = """
import os, socket, sys, time
from holdfast.ipc.frames import Decoder, encode
link, decoder = socket.socket(socket.AF_UNIX), Decoder()
link.connect(os.environ["HOLDFAST_GATE"])
link.sendall(encode(dict(op="hello", version=1, member=os.environ["HOLDFAST_MEMBER"], pid=os.getpid(),
    store="127.0.0.1:5", phase="finished", generation=2, step=3, held_step=3)))
while not any(message["op"] == "complete" for message in decoder.feed(link.recv(65536))):
    pass
link.close()
time.sleep(4)
print("saved", flush=True)
"""

ENDS = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
sys.exit(3)
"""


async def test_what_a_rank_does_after_the_end_of_its_job_is_its_own_matter(leader: Leader) -> None:
    """It has closed its session, and is silent for longer than a rank may be: it saves the model."""
    with folder() as base:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        (base / "script.py").write_text(SAVES)
        await leader.order(launch("job.0", spec(base / "script.py")))
        await leader.phase("job.0", MemberPhase.FINISHED)
        await leader.order(effects.Complete("n0", "job", True, "every rank finished"))
        status = await leader.phase("job.0", MemberPhase.EXITED)
        await agent.end()
        assert status.failure is None or status.failure.exit_code == 0, status.failure
        assert "job.0 ended: well" in agent.err()


async def test_while_there_is_no_leader_the_age_of_a_failure_grows(
    agent: AgentProcess, leader: Leader
) -> None:
    """Else what it costs to be without a leader is no part of what the incident cost."""
    script = agent.base / "script.py"
    script.write_text(ENDS)
    await leader.order(launch("job.0", spec(script, str(agent.base / "end"))))
    await leader.phase("job.0", MemberPhase.STARTING)
    leader.leave()
    (agent.base / "end").touch()
    await until(lambda: "job.0 ended" in agent.err(), "it ends")
    ended = time.monotonic()
    await asyncio.sleep(1.5)
    leader.lead(2)
    (status,) = (await leader.hello(2)).joined.members
    assert status.failure is not None and status.failure.exit_code == 3
    assert 1.5 <= status.failure.age_s <= time.monotonic() - ended + 1


async def test_who_ends_while_its_next_launcher_starts_ends_in_order(
    agent: AgentProcess, leader: Leader
) -> None:
    """Nobody has attached to that launcher yet, so it cannot be told over its socket."""
    await leader.hello(1)
    agent.addresses()
    first = int((agent.run_dir / "launcher.pid").read_text())
    os.kill(first, signal.SIGKILL)
    second = await until(
        lambda: next((pid for pid in launchers(agent) if pid != first), 0), "another launcher"
    )
    os.kill(second, signal.SIGSTOP)
    assert await agent.end() == 0, agent.err()
    assert not alive(second)
    assert not (agent.run_dir / "launcher.sock").exists(), "the launcher that was killed has left it"


def launchers(agent: AgentProcess) -> list[int]:
    """The launchers that this agent has started."""
    words = "holdfast.launch.launcher"
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if words in _command(pid)]


def _command(pid: str) -> str:
    """Its command line; empty if it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
