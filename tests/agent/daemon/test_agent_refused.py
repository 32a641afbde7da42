"""A whole agent process that cannot be, or not here: it ends with the reason."""

from __future__ import annotations

import asyncio

from controlplane.exit_codes import REFUSED
from controlplane.wire import codec
from tests.agent.support import AgentProcess, Leader, folder


async def test_a_second_agent_is_refused(agent: AgentProcess, leader: Leader) -> None:
    await leader.hello(1)
    second = AgentProcess(agent.base, f"127.0.0.1:{leader.port}")
    assert await asyncio.to_thread(second.process.wait, 60) == 1
    assert "--run-dir" in agent.err()
    assert agent.process.poll() is None


async def test_a_refused_agent_ends_with_the_reason(leader: Leader) -> None:
    leader.refusal = codec.refused("protocol version 1, this coordinator speaks 2", retry=False)
    with folder() as base:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        assert await asyncio.to_thread(agent.process.wait, 60) == REFUSED
        assert "this coordinator speaks 2" in agent.err()
        assert not list((base / "shm").iterdir())


async def test_a_standby_names_the_leader(leader: Leader) -> None:
    async with Leader() as standby:
        standby.refusal = codec.refused("a standby", retry=True, leader=f"127.0.0.1:{leader.port}")
        with folder() as base:
            agent = AgentProcess(base, f"127.0.0.1:{standby.port}")
            await leader.hello(1)
            assert await agent.end() == 0


async def test_impossible_settings_are_named(leader: Leader) -> None:
    with folder() as base:
        for settings, word in (
            ({"run_dir": str(base / ("x" * 100))}, "--run-dir"),
            ({"node": "../up"}, "node name"),
            ({"metrics": "127.0.0.1:99999"}, "--metrics"),
            ({"coordinator": "no.such.host.invalid:1"}, "--coordinator"),
        ):
            agent = AgentProcess(base, **{"coordinator": f"127.0.0.1:{leader.port}", **settings})
            assert await asyncio.to_thread(agent.process.wait, 60) == 1
            assert word in agent.err().splitlines()[-1]
