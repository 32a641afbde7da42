"""The scale benchmark's agents speak as real servers do, and a real leader takes its fleet over."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from benchmarks.scale import shape
from benchmarks.scale.http2 import WINDOW_BYTES, NoRoom, Stream
from benchmarks.scale.light_agent import LINK, LightAgent, Talk
from benchmarks.scale.shape import NODES_PER_JOB, RANKS, Fleet
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.rows import RecordMapping
from tests.daemon.etcd_fixtures import until
from tests.security.authority import CLUSTER
from tests.security.serving import leading, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

FLEET = Fleet(NODES_PER_JOB)
LONG = b"x" * 50_000


@contextlib.asynccontextmanager
async def answering(answer: Callable[[Any], Awaitable[None]]) -> AsyncIterator[str]:
    """A real grpc.aio server with one method, at the address that is yielded."""
    server = grpc.aio.server()

    async def link(_: Any, context: Any) -> None:
        await answer(context)

    method = grpc.stream_stream_rpc_method_handler(link, None, None)
    handler = grpc.method_handlers_generic_handler("holdfast.control.v1.Control", {"Link": method})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def exchanged(address: str, messages: list[bytes]) -> list[bytes]:
    """Send these one after the other, each after the answer to the one before. Returns the answers."""
    stream = Stream(LINK, address)
    found: list[bytes] = []
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(stream.opening())
    for message in [*messages, b""]:
        writer.write(stream.message(message))
        wanted = len(found) + 1
        while len(found) < wanted and not stream.over:
            data = await reader.read(1 << 16)
            assert data, "the server has cut the connection"
            answers, reply = stream.receive(data)
            found += answers
            writer.write(reply)
    writer.close()
    await writer.wait_closed()
    assert stream.over == "ended"
    return found


async def test_messages_go_both_ways_beyond_every_window() -> None:
    async def echo(context: Any) -> None:
        while message := await context.read():
            await context.write(message[::-1])

    sent = [bytes([number]) * 9 + LONG for number in range(20)]
    async with answering(echo) as address:
        assert await exchanged(address, sent) == [message[::-1] for message in sent]


def test_more_than_the_server_has_granted_is_not_sent() -> None:
    stream = Stream(LINK, "a:1")
    assert len(stream.message(LONG)) < WINDOW_BYTES
    with pytest.raises(NoRoom, match="50005 bytes"):
        stream.message(LONG)


def test_the_next_leader_reads_the_whole_fleet() -> None:
    records = RecordMapping(Keyspace("c"))
    rows = {key: value for each in FLEET.records() for key, value in records.puts(each).items() if value}
    elected = RecordMapping(Keyspace("c")).elected(2, rows)
    assert not elected.unread and len(elected.nodes) == FLEET.nodes
    (generation,) = elected.generations
    assert [seat.node for seat in generation.seats[::RANKS]] == [shape.name_of(n) for n in range(FLEET.nodes)]
    with pytest.raises(ValueError, match="multiple of 100"):
        Fleet(150)


async def test_an_agent_is_welcomed_beats_and_reports_a_death() -> None:
    records = RecordMapping(Keyspace(CLUSTER))
    rows = {key: value for each in FLEET.records() for key, value in records.puts(each).items() if value}
    async with serving() as served, leading(served.front, records.elected(2, rows)) as term:
        talk = Talk((served.address,), CLUSTER, None)
        agents = [LightAgent(number, talk) for number in range(FLEET.nodes)]
        for agent in agents:
            await agent.connect()
        await until(lambda: all(agent.attached for agent in agents), "all agents are attached")
        recovery = term.core.state.jobs[shape.job_of(0)].recovery
        assert not recovery.incidents
        agents[0].kill_rank()
        await until(lambda: recovery.incidents > 0, "the death is judged")
        for agent in agents:
            agent.lose()
    assert not talk.ends
