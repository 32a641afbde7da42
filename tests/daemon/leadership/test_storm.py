"""All agents of a cluster come at once to a new leader that has hardly time for them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.scale.light_agent import LightAgent, Talk
from benchmarks.scale.shape import Fleet
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.loop.event_loop import CoordinatorLoop
from tests.daemon.etcd_fixtures import client_of, first, until
from tests.security.authority import CLUSTER
from tests.security.serving import leading, serving

if TYPE_CHECKING:
    from controlplane.daemon.etcd.server import PrivateEtcd

FLEET = Fleet(100)
SETTINGS = CoreSettings(node_timeout_s=3.0, brake_max_s=1.0)
TURN_S = 0.03
ENOUGH_S = 150.0


async def busy() -> None:
    """Take TURN_S of each turn of the event loop: hardly a hundred agents get in before their timeout."""
    while True:
        time.sleep(TURN_S)  # noqa: ASYNC251 - that is what is tested
        await asyncio.sleep(0)


def test_a_busy_leader_loses_neither_its_lease_nor_an_agent_that_waits(etcd_server: PrivateEtcd) -> None:
    with asyncio.Runner(loop_factory=CoordinatorLoop) as runner:
        runner.run(stormed(etcd_server.endpoint))


async def stormed(endpoint: str) -> None:
    keys, records = Keyspace("storm"), RecordMapping(Keyspace(CLUSTER))
    rows = {key: value for each in FLEET.records() for key, value in records.puts(each).items() if value}
    elected = records.elected(2, rows)
    async with (
        client_of(endpoint) as etcd,
        await first(Election(etcd, keys, b"me", ttl_s=3).campaign()) as leadership,
        serving() as served,
        leading(served.front, elected, settings=SETTINGS, held=lambda: leadership.held) as term,
    ):
        work = [asyncio.create_task(busy()), asyncio.create_task(served.front.watch_line())]
        talk = Talk((served.address,), CLUSTER, None)
        agents = [LightAgent(number, talk) for number in range(FLEET.nodes)]
        await asyncio.gather(*(agent.connect() for agent in agents))
        await until(lambda: all(agent.attached for agent in agents), "all are welcomed", ENOUGH_S)
        assert leadership.held and not leadership.lost.is_set()
        assert {node.state for node in term.core.state.nodes.values()} == {"up"}
        assert all(node.lost_at < 0 for node in term.core.state.nodes.values()), "nobody was lost meanwhile"
        for task in work:
            task.cancel()
        for agent in agents:
            agent.lose()
        await asyncio.gather(*work, return_exceptions=True)
