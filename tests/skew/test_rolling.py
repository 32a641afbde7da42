"""A rolling upgrade and its roll back, with real daemons of both versions under one job that goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from agent.peers import wire
from controlplane.wire import peer_pb2 as pb
from holdfast.version import __version__
from tests.e2e.cli_running import ASKED_S
from tests.skew.conftest import RELEASED
from tests.skew.rolling import NEW, of_version, rolling
from tests.training import elastic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.skew.rolling import Rolling


def test_each_version_is_its_own(old: Path) -> None:
    look = "import agent, controlplane as c, holdfast; print(agent.__file__, c.__file__, holdfast.__file__)"
    for tree in (old, NEW):
        words = [sys.executable, "-P", "-c", look]
        found = subprocess.run(
            words, env=of_version(tree), cwd="/", text=True, capture_output=True, check=True
        )
        assert all(path.startswith(f"{tree}/") for path in found.stdout.split()), found.stdout


def test_a_rolling_upgrade_and_its_roll_back_with_the_version_before_built_from_git(
    released: Path, shared_etcd: str, cluster: str
) -> None:
    with rolling(shared_etcd, cluster) as world:
        first = world.coordinator(released)
        for node in ("n0", "n1"):
            world.agent(node, released)
        world.submit(released)
        world.goes_on("all of the version before")

        second = world.coordinator(NEW)
        first.end()
        world.kill_rank(1)
        world.goes_on("a new leader, old agents")
        rows = [world.status(tree)["jobs"][0] for tree in (released, NEW)]
        assert [(row["phase"], row["incidents"]) for row in rows] == [("running", 1)] * 2

        _replace(world, "n1", NEW)
        world.kill_rank(0)
        world.goes_on("a new leader, one agent of each version")
        _copies_cross(world)

        _replace(world, "n0", NEW)
        world.goes_on("all new")

        world.coordinator(released)
        second.end()
        world.kill_rank(0)
        world.goes_on("an old leader, new agents")
        rows = [world.status(tree)["jobs"][0] for tree in (released, NEW)]
        assert [row["phase"] for row in rows] == ["running"] * 2
        _replace(world, "n1", released)
        world.finish()
        assert world.dropped() == []


def _replace(world: Rolling, node: str, tree: Path) -> None:
    """An agent dies, and one of this version takes its ranks over."""
    world.agents[node].kill()
    world.agent(node, tree)
    world.wait(world.agents[node].address_file.exists, f"{node} serves again")


def _copies_cross(world: Rolling) -> None:
    """Each node keeps the newest copies of the other's rank, though their agents are of two versions."""
    step = world.steps.look().highest
    for node in ("n0", "n1"):
        place = world.peer(node)
        world.wait(partial(_has_newer, place, step), f"copies at {node}")


def _has_newer(place: str, step: int) -> bool:
    return asyncio.run(_newest(place)) > step


async def _newest(address: str) -> int:
    """The newest step of which this agent keeps a copy for another node; -1: none."""
    async with wire.channel(address) as channel:
        reply = await wire.PeerCalls(channel).have(pb.HaveRequest(), timeout=10)
    return max((copy.step for copy in reply.copies), default=-1)


def test_ranks_of_two_versions_do_not_train_together_and_say_so(
    old: Path, shared_etcd: str, cluster: str
) -> None:
    """A node that was made anew in the midst of a job has its launcher and SDK from the new version, too."""
    with rolling(shared_etcd, cluster) as world:
        world.coordinator(NEW)
        world.agent("n0", old)
        world.agent("n1", NEW)
        world.submit(NEW, "--max-restarts", "0", "--spares", "0", script=elastic(5))
        (state,) = world.wait(world.ended, "the job ends")
        assert state["phase"] == "failed"
        assert "ranks of two versions of Holdfast are in one job: 1 of 2" in state["reason"], state["reason"]
        assert "in generation 1 as rank" not in world.said()


def test_new_ranks_wait_for_nodes_of_one_version_and_say_for_which(
    released: Path, shared_etcd: str, cluster: str
) -> None:
    with rolling(shared_etcd, cluster) as world:
        world.coordinator(NEW)
        world.agent("n0", released)
        world.agent("n1", NEW)
        world.wait(lambda: len(world.bodies("NodeJoined")) == 2, "both nodes")
        world.submit(NEW, script=elastic(5))
        why = f"its agent is holdfast {RELEASED}, the job's are {__version__}: install the same"
        world.wait(lambda: why in world.status(NEW)["jobs"][0]["reason"], why, pause_s=ASKED_S)
        assert world.bodies("Launch") == []
