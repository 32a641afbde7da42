from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.host.paths import Paths
from controlplane.settings import AgentSettings
from holdfast import removal
from tests.agent.support import AgentProcess, Leader, folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    """A coordinator's side of the wire, which sends what the test tells it to."""
    async with Leader() as leader:
        yield leader


@pytest.fixture
async def agent(leader: Leader) -> AsyncIterator[AgentProcess]:
    """An agent under that leader, with a long timeout for silent ranks. Checks that it leaves no shared
    memory behind."""
    with folder() as base:
        process = AgentProcess(base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0)
        yield process
        await process.end()
        assert not list((base / "shm").iterdir()), process.err()


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder for several nodes, removed after the test with all that is in it."""
    with folder() as path:
        yield path


@pytest.fixture
def paths(base: Path) -> Paths:
    """The folders of a node n0. Only its folder of shared memory exists."""
    settings = AgentSettings(cluster="c", node="n0", run_dir=str(base / "run"), shm_dir=str(base))
    paths = Paths.of(settings, "n0")
    paths.memory.mkdir()
    removal.claim(paths.memory)
    return paths
