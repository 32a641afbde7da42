"""Coordinators that die, end and replace each other, on a real etcd."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from controlplane.cli.client import AdminClient as Client
from controlplane.cli.errors import UnreachableError
from controlplane.cli.orders.follow import status_by
from controlplane.core.records.model import JobSpec
from controlplane.reporting.event_text import sentence_of
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.daemon.rig import Agent, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.rig import Coordinator

AWAY_S, SEEN_S = 18.0, 6.0
"""After so long gRPC would try again only after some 8 s more, unless it is told otherwise."""


def _spec(job: str = "train") -> JobSpec:
    return JobSpec(job, ("train.py", "--lr", "1e-3"), "/", env=(("A", "b"),), nproc_per_node=2)


async def _submit(address: str, spec: JobSpec) -> pb.SubmitReply:
    async with grpc.aio.insecure_channel(address) as channel:
        reply: pb.SubmitReply = await AdminStub(channel).Submit(  # type: ignore[no-untyped-call]
            pb.SubmitRequest(spec=codec.spec_message(spec)), timeout=20
        )
        return reply


async def _status(address: str) -> pb.StatusReply:
    async with grpc.aio.insecure_channel(address) as channel:
        reply: pb.StatusReply = await AdminStub(channel).Status(  # type: ignore[no-untyped-call]
            pb.StatusRequest(), timeout=20
        )
        return reply


async def test_whoever_waits_outlasts_a_change_of_leaders(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one = await make().start()
    await one.leads()
    async with Client(one.listen) as admin:
        one.kill()
        with pytest.raises(UnreachableError):
            async with asyncio.timeout(60):
                await status_by(admin, time.monotonic())
        waiting = asyncio.create_task(status_by(admin, math.inf))
        await asyncio.sleep(AWAY_S)
        await one.start()
        await one.leads()
        async with asyncio.timeout(SEEN_S):
            assert (await waiting).cluster == cluster


async def test_who_follows_a_leader_that_is_stopped_hears_of_it(make: Callable[..., Coordinator]) -> None:
    """As one whose host is gone: nothing ends the connection, and there is nothing to read."""
    one = await make().start()
    await one.leads()
    async with Client(one.listen) as admin:
        lines = admin.events(follow=True)
        async with asyncio.timeout(60):
            await anext(lines)
        os.kill(one.pid, signal.SIGSTOP)
        with pytest.raises(UnreachableError, match=one.listen):
            async with asyncio.timeout(60):
                async for _ in lines:
                    pass
    os.kill(one.pid, signal.SIGCONT)


async def test_killed_and_started_again_it_knows_its_jobs(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one = await make().start()
    await one.leads()
    assert not (await _submit(one.listen, _spec())).resumed
    before = await _status(one.listen)
    async with Agent(one.listen) as agent:
        assert (await agent.hello(cluster)).WhichOneof("body") == "welcome"
        one.kill()
        assert (await agent.ended())[0] is grpc.StatusCode.UNAVAILABLE
    address = one.listen
    await one.start()
    assert one.listen == address
    await one.leads()
    after = await _status(address)
    assert after.term > before.term
    assert [(row.job, row.argv) for row in after.jobs] == [(row.job, row.argv) for row in before.jobs]
    async with Agent(address, incarnation=2) as agent:
        answer = await agent.hello(cluster, term_seen=before.term)
        assert answer.WhichOneof("body") == "welcome"
        assert answer.term == after.term
    assert (await _submit(address, _spec())).resumed


async def test_a_dead_leader_of_this_machine_is_not_waited_for(make: Callable[..., Coordinator]) -> None:
    """Its lease lasts a minute; its process is gone, and that can be seen."""
    one = await make("a", lease_ttl_s=60.0, node_timeout_s=61.0).start()
    await one.leads()
    one.kill()
    two = await make("b", lease_ttl_s=60.0, node_timeout_s=61.0).start()
    await two.leads()


async def test_two_coordinators(make: Callable[..., Coordinator], cluster: str) -> None:
    one, two = await make("a").start(), make("b")
    await one.leads()
    await two.start()
    await until(lambda: two.samples()['holdfast_etcd_errors_total{operation="load"}'] == 0)
    answer = await _refusal(two, cluster, one.listen)
    assert answer.refused.retry
    with pytest.raises(grpc.aio.AioRpcError, match="the leader is " + one.listen) as caught:
        await _status(two.listen)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert ("holdfast-leader", one.listen) in tuple(caught.value.trailing_metadata())
    async with Client(f"{two.listen},{one.listen}") as admin:
        lines = [json.loads(line.json) async for line in admin.events(follow=False)]
    assert "Elected" in {line["type"] for line in lines}, "the leader's journal, whoever is named first"
    async with Agent(one.listen) as agent:
        term = (await agent.hello(cluster)).term
        assert one.end(signal.SIGTERM) == 0
        goodbye = await agent.order(codec.Refused)
        assert goodbye.retry
    await two.leads()
    async with Agent(two.listen) as agent:
        assert (await agent.hello(cluster, term_seen=term)).term > term


async def test_a_leader_with_other_settings_than_the_one_before_says_so(
    make: Callable[..., Coordinator],
) -> None:
    one = await make("a", lease_ttl_s=2.0).start()
    await one.leads()
    two = await make("b", lease_ttl_s=2.0, slow_rank_policy="act", node_timeout_s=31.5).start()
    three = await make("c", lease_ttl_s=2.0).start()
    other = "--node-timeout-s 31.5 (there 30.0), --slow-rank-policy act (there report)"
    await until(lambda: f"than the leader at {one.listen}: {other}; start all" in two.log())
    three.end()
    assert "other settings" not in three.log() + one.log()
    one.kill()
    await two.leads()
    assert f"than {one.listen}: {other}" in two.log()
    (line,) = await until(lambda: [line for line in two.lines() if line["type"] == "SettingsChanged"])
    assert f"the leader before it, at {one.listen}: {other}; start all coordinators" in sentence_of(line).text


async def _refusal(standby: Coordinator, cluster: str, leader: str) -> pb.CoordinatorMessage:
    """The answer of a standby, once it has learnt who leads."""
    while True:
        async with Agent(standby.listen) as agent:
            answer = await agent.hello(cluster)
        assert answer.WhichOneof("body") == "refused"
        if answer.refused.leader:
            assert answer.refused.leader == leader
            return answer


async def test_a_stopped_leader_finds_out_that_its_time_is_over(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one = await make("a", lease_ttl_s=2.0).start()
    await one.leads()
    two = await make("b", lease_ttl_s=2.0).start()
    async with Agent(one.listen) as agent:
        await agent.hello(cluster)
        os.kill(one.pid, signal.SIGSTOP)
        await two.leads()
        os.kill(one.pid, signal.SIGCONT)
        refused = await agent.order(codec.Refused)
        assert refused.retry and "no longer leads" in refused.reason
    await until(lambda: one.samples()["holdfast_leader"] == 0)
    assert two.samples()["holdfast_leader"] == 1


async def test_a_port_that_is_taken(make: Callable[..., Coordinator]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        one = make(listen=address)
        assert one.spawn().wait(30) == 1
        assert f"cannot listen on {address}" in one.log()
        two = make("b", metrics=address)
        assert two.spawn().wait(30) == 1
        assert f"cannot serve metrics on {address}" in two.log()


async def test_what_is_not_etcd(make: Callable[..., Coordinator]) -> None:
    one = await make("a").start()
    two = make("b", etcd=one.listen)  # speaks gRPC, but is no etcd
    assert two.spawn().wait(30) == 1
    assert "does not speak" in two.log() or "not etcd" in two.log()


async def test_an_etcd_that_is_away_is_waited_for(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make("a", etcd="127.0.0.1:1").start()
    await until(lambda: "does not answer" in one.log())
    async with Agent(one.listen) as agent:
        assert "no leader is known yet" in (await agent.hello(cluster)).refused.reason
    assert one.end() == 0


async def test_ended_in_order_it_leaves_nothing(make: Callable[..., Coordinator]) -> None:
    one = await make().start()
    await one.leads()
    assert json.loads(one.address_file.read_text())["pid"] == one.pid
    assert one.end(signal.SIGINT) == 0
    assert not one.address_file.exists()
    assert "Traceback" not in one.log()
    assert one.lines()[-1]["type"] == "LeadershipEnded"
