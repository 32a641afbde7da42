"""Real agents send through one of them, which is stopped until its node counts as lost. No other does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.daemon.server.relay_table import QUIET_S
from tests.agent.support import AgentProcess, folder
from tests.daemon.rig import Coordinator, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODES = ("n0", "n1", "n2", "n3")
NODE_TIMEOUT_S = 6.0


@contextlib.asynccontextmanager
async def serving(etcd: str, name: str) -> AsyncIterator[tuple[Coordinator, dict[str, AgentProcess]]]:
    """A coordinator that wants relays at once, and four agents."""
    with folder() as base:
        settings: dict[str, Any] = {
            "relay_beats_from": 1,
            "node_timeout_s": NODE_TIMEOUT_S,
            "mass_loss_ratio": 1.0,
            "lease_ttl_s": 3.0,
        }
        coordinator = Coordinator(base, etcd, name, **settings)
        agents: dict[str, AgentProcess] = {}
        try:
            await coordinator.start()
            await coordinator.leads()
            for node in NODES:
                (base / node).mkdir()
                agents[node] = AgentProcess(base / node, coordinator.listen, cluster=name, node=node)
            yield coordinator, agents
        finally:
            for agent in agents.values():
                agent.process.send_signal(signal.SIGCONT)
                agent.process.kill()
                agent.process.wait()
            coordinator.end()


def relayed(coordinator: Coordinator) -> float:
    return coordinator.samples()["holdfast_heartbeats_relayed_total"]


def relays_of(agents: dict[str, AgentProcess]) -> set[str]:
    """The nodes through which these agents were told to send."""
    text = "".join(agent.err() for agent in agents.values())
    return set(re.findall(r"heartbeats go through (\S+)", text))


def lost(coordinator: Coordinator) -> list[str]:
    notes = [line["body"] for line in coordinator.lines() if line["type"] == "Note"]
    return [note["subject"] for note in notes if note["kind"] == "node_lost"]


@pytest.mark.timeout(240)
async def test_a_stopped_relay_is_lost_alone_and_the_others_are_given_another(
    shared_etcd: str, cluster: str
) -> None:
    async with serving(shared_etcd, cluster) as (coordinator, agents):
        await until(lambda: relayed(coordinator) > 2 * len(NODES))
        (first,) = relays_of(agents)
        others = {node: agent for node, agent in agents.items() if node != first}
        os.kill(agents[first].process.pid, signal.SIGSTOP)
        await until(lambda: lost(coordinator))
        assert lost(coordinator) == [first]
        assert all("heartbeats go directly" in agent.err() for agent in others.values())
        await until(lambda: relays_of(others) - {first}, 2 * QUIET_S)
        before = relayed(coordinator)
        await until(lambda: relayed(coordinator) > before + 2 * len(NODES))
        os.kill(agents[first].process.pid, signal.SIGCONT)
        await until(lambda: coordinator.samples()["holdfast_agent_connections"] == len(NODES))
        assert lost(coordinator) == [first]
        assert not coordinator.samples().get('holdfast_messages_dropped_total{reason="relayed"}')
