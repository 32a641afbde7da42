"""A coordinator takes as many connections as the hard limit of open files allows, and says when it is low."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.daemon.rig import ROOT, Agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.daemon.rig import Coordinator

SOFT = 64
AGENTS = 80


@pytest.fixture
def few_files() -> Iterator[Callable[[int], None]]:
    """Sets the soft limit of what is started from now on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda soft: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_more_agents_than_the_soft_limit_connect(
    make: Callable[..., Coordinator], cluster: str, few_files: Callable[[int], None]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few_files(SOFT)
    one = await make().start()
    few_files(before)
    await one.leads()
    agents = [Agent(one.listen, f"n{number}") for number in range(AGENTS)]
    answers = await asyncio.wait_for(asyncio.gather(*(agent.hello(cluster) for agent in agents)), 60)
    await asyncio.gather(*(agent.close() for agent in agents))
    assert [answer.WhichOneof("body") for answer in answers] == ["welcome"] * AGENTS
    assert "files may be open" not in one.log()


def test_a_low_hard_limit_is_told() -> None:
    said = "import logging; logging.basicConfig(); from controlplane.daemon.server import open_files as it; "
    words = (
        "sh",
        "-c",
        'ulimit -n 256; exec "$@"',
        "sh",
        sys.executable,
        "-c",
        said + "print(it.raise_limit())",
    )
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "256\n" and "only 256 files may be open here" in done.stderr
