"""Agents and bytes that are not taken: each with its reason, mend and count, and nothing else ends."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.core.records.events import MemberReport
from controlplane.core.records.model import MemberPhase, MemberStatus
from controlplane.daemon.server.context import DROPS_TOLD_PER_S
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.daemon.rig import Agent, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.rig import Coordinator


def _dropped(coordinator: Coordinator, reason: str) -> float:
    return coordinator.samples()[f'holdfast_messages_dropped_total{{reason="{reason}"}}']


async def test_refused_hellos(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make().start()
    await one.leads()
    cases: list[tuple[dict[str, Any], str, str, bool]] = [
        ({"protocol_version": 7}, "wrong_version", "upgrade the coordinator", False),
        ({"cluster": "other"}, "wrong_cluster", "--cluster", False),
        ({"node": "no/slash"}, "bad_name", "node name 'no/slash'", False),
        ({"term_seen": 1 << 40}, "stale_leader", "connect to the newer one", True),
    ]
    for changes, counted, mend, retry in cases:
        async with Agent(one.listen) as agent:
            answer = await agent.hello(cluster, **changes)
            assert answer.WhichOneof("body") == "refused"
            assert mend in answer.refused.reason
            assert answer.refused.retry is retry
            assert (await agent.ended())[0] is grpc.StatusCode.OK
        assert _dropped(one, counted) == 1


async def test_a_storm_of_agents_at_a_standby_is_counted_and_fills_no_log(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one, storm, begun = await make(etcd="127.0.0.1:9").start(), 150, time.monotonic()
    agents = [Agent(one.listen, f"n{number}") for number in range(storm)]
    answers = await asyncio.gather(*(agent.hello(cluster) for agent in agents))
    took_s = time.monotonic() - begun
    assert all(answer.refused.retry for answer in answers)
    await asyncio.gather(*(agent.close() for agent in agents))
    assert _dropped(one, "not_leader") == storm
    assert 1 <= one.log().count("dropped (not_leader)") <= DROPS_TOLD_PER_S * (took_s + 2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe garbage \x00", "are not an AgentMessage"),
        (pb.AgentMessage(beat=pb.Beat(seq=1)).SerializeToString(), "must be a hello"),
        (b"", "must be a hello"),
        (
            pb.AgentMessage(hello=pb.Hello(protocol_version=codec.PROTOCOL_VERSION)).SerializeToString(),
            "Hello.node is missing",
        ),
    ],
)
async def test_first_messages_that_are_no_hello(
    shared_coordinator: Coordinator, data: bytes, said: str
) -> None:
    async with Agent(shared_coordinator.listen) as agent:
        await agent.send(data)
        code, details = await agent.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in details


@pytest.mark.parametrize("size", [5 << 20, 20 << 20])
async def test_oversized(shared_coordinator: Coordinator, size: int) -> None:
    async with Agent(shared_coordinator.listen) as agent:
        await agent.send(b"\x0a" * size)
        code, details = await agent.ended()
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert str(size) in details


async def test_a_stream_of_garbage_ends_alone(shared_coordinator: Coordinator, shared_cluster: str) -> None:
    one = shared_coordinator
    before = _dropped(one, "malformed")
    async with Agent(one.listen, "good") as good, Agent(one.listen, "bad") as bad:
        for agent in (good, bad):
            assert (await agent.hello(shared_cluster)).WhichOneof("body") == "welcome"
        await bad.send(b"\xff\xff\xff")
        code, details = await bad.ended()
        assert (code, details) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "3 bytes that are not an AgentMessage",
        )
        # content that cannot be costs only itself: the stream goes on
        status = MemberStatus("j.1", "j", MemberPhase.WARM)
        report = codec.to_coordinator(_report(good, status))
        report.report.status.phase = "dancing"
        await good.send(report.SerializeToString())
        await good.beat()
        await until(lambda: _dropped(one, "malformed") == before + 2)
        assert "dancing" in one.log()
        assert one.samples()["holdfast_agent_connections"] == 1


def _report(agent: Agent, status: MemberStatus) -> MemberReport:
    agent.seq += 1
    return MemberReport(agent.node, agent.incarnation, agent.seq, status)
