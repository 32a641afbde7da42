"""The version before, by what it said when it was recorded: this needs no history of git."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.agent.daemon.test_coordinator_link import Node, running
from tests.agent.support import until
from tests.daemon.rig import Agent, Coordinator
from tests.daemon.rig import until as until_there
from tests.skew import before, streams
from tests.skew.between import DOWN, UP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDED_UP = {
    "hello",
    "beat",
    "report",
    "started",
    "snapshot_ready",
    "part_persisted",
    "persisted",
    "published",
}
NEEDED_DOWN = {"welcome", "launch", "form", "interrupt", "release", "persist", "seal", "publish", "replicate"}
NEEDED_DOWN |= {"returning", "complete"}


@pytest.mark.parametrize("way", ["git" if before.at_hand() else "recorded streams"])
def test_the_version_before_is_had_by(way: str) -> None:
    assert streams.commit() == before.commit(), f"run python -m tests.skew.record (had by {way})"


def test_the_recorded_streams_hold_a_job_from_its_beginning_to_its_end() -> None:
    told, ordered = set(), set()
    for said in streams.read().values():
        told |= {pb.AgentMessage.FromString(data).WhichOneof("body") for data in streams.of(said, UP)}
        ordered |= {
            pb.CoordinatorMessage.FromString(data).WhichOneof("body") for data in streams.of(said, DOWN)
        }
    assert told >= NEEDED_UP
    assert ordered >= NEEDED_DOWN


@pytest.fixture
def leader(folder: Path, shared_etcd: str) -> Iterator[Coordinator]:
    """A coordinator of the cluster whose agents were recorded."""
    one = Coordinator(folder, shared_etcd, "skew")
    yield one
    one.end()


async def test_a_leader_takes_what_agents_of_the_version_before_said(leader: Coordinator) -> None:
    one = await leader.start()
    await one.leads()
    agents = []
    for node, said in streams.read().items():
        agents.append(Agent(one.listen, node))
        first, *others = streams.of(said, UP)
        await agents[-1].send(first)
        assert (await agents[-1].read()).WhichOneof("body") == "welcome"
        for data in others:
            await agents[-1].send(data)
        await agents[-1].send(b"")  # the only one that is none
    await until_there(lambda: _malformed(one) == len(agents))
    assert not any(agent.call.done() for agent in agents)
    assert one.samples()["holdfast_agent_connections"] == len(agents)
    for agent in agents:
        await agent.close()


def _malformed(coordinator: Coordinator) -> float:
    return coordinator.samples()['holdfast_messages_dropped_total{reason="malformed"}']


@pytest.mark.parametrize("node", ["n0", "n1"])
async def test_an_agent_takes_what_a_leader_of_the_version_before_said(node: str) -> None:
    said = streams.of(streams.read()[node], DOWN)
    bodies = [pb.CoordinatorMessage.FromString(data).WhichOneof("body") for data in said]
    orders = [body for body in bodies if body not in ("welcome", "refused")]
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_player(said),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        agent = Node(f"127.0.0.1:{port}")
        async with running(agent):
            await until(lambda: len(agent.orders) + len(agent.dropped) >= len(orders), "every order")
            assert agent.link.up
    finally:
        await server.stop(None)
    assert agent.dropped == []
    assert [codec._BODY_OF_ORDER[type(order)] for order in agent.orders] == orders


def _player(said: list[bytes]) -> Any:
    """Answers every hello with what was recorded, and keeps the stream."""

    async def link(_requests: Any, context: Any) -> None:
        await context.read()
        for data in said:
            await context.write(data)
        while await context.read() is not grpc.aio.EOF:
            pass

    handler = grpc.stream_stream_rpc_method_handler(link)
    return grpc.method_handlers_generic_handler("holdfast.control.v1.Control", {"Link": handler})
