"""A node whose memory is full, or whose folders somebody removes: nothing fails for good, and all is told."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase
from holdfast import removal
from tests.agent.daemon.test_agent import RANK, elastic, heard, script
from tests.agent.support import AgentProcess, launch, spec, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agent.support import Leader


async def test_folders_that_are_removed_are_made_again(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    shutil.rmtree(agent.run_dir)
    shutil.rmtree(agent.memory)
    await leader.order(launch("job.1", spec(script(agent, "pass"))))
    assert (await leader.phase("job.1", MemberPhase.EXITED)).failure is None
    assert removal.claimed(agent.run_dir) and removal.claimed(agent.memory)
    await until((agent.run_dir / "gate.sock").exists, "a socket for ranks")
    os.kill(pid, 0)  # who lived lives on
    await leader.order(effects.Kill("n0", "job", "job.0", "enough"))
    await leader.phase("job.0", MemberPhase.EXITED)


@pytest.fixture
def small(base: Path) -> Iterator[Path]:
    """A memory of 256 KiB; skips where nothing may be mounted."""
    place = base / "shm"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a tmpfs is not allowed here: {error}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_memory_is_waited_for_and_told(base: Path, small: Path, leader: Leader) -> None:
    agent = AgentProcess(base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0)
    await until(lambda: leader.hellos, "the agent")
    ballast = small / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    await leader.order(launch("job.0", spec(script(agent, "pass"))))
    told = await until(lambda: [s for s in leader.reports("job.0") if s.no_room], "what is in the way")
    assert told[0].phase is MemberPhase.LAUNCHED and f"No space left on device: '{small}" in told[0].no_room
    assert told[0].no_room.endswith("; make room there, and it is started")
    assert not leader.of(events.OrderFailed)
    ballast.unlink()
    assert (await leader.phase("job.0", MemberPhase.EXITED)).failure is None
    assert leader.reports("job.0")[-1].no_room == ""
    assert await agent.end() == 0


async def test_an_arena_for_which_there_was_no_room_is_made_once_there_is(
    base: Path, small: Path, leader: Leader
) -> None:
    agent = AgentProcess(base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0)
    await until(lambda: leader.hellos, "the agent")
    larger = script(agent, RANK.replace("bytes=100_000", "bytes=200_000"))
    await leader.order(launch("job.0", spec(larger)))
    await leader.phase("job.0", MemberPhase.READY)
    await until(lambda: "arena_failed" in heard(agent), "the refusal")
    assert not leader.of(events.SnapshotReady)
    grown = await asyncio.create_subprocess_exec("mount", "-o", "remount,size=2m", str(small))
    assert await grown.wait() == 0
    await until(lambda: leader.of(events.SnapshotReady), "the snapshot")
    assert heard(agent).count("arena_failed") == 1
    assert await agent.end() == 0
