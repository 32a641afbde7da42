"""grpc.health.v1 as a probe asks it: serving and standby told apart, in plaintext on a port of its own."""

from __future__ import annotations

import grpc
import pytest

from controlplane.daemon.server.health import LEADER, STANDBY, HealthServer
from controlplane.wire import health_pb2 as pb
from tests.security.serving import serving

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
ENDS = (pb.HealthRequest.SerializeToString, pb.HealthReply.FromString)
SERVING, NOT_SERVING = pb.HealthReply.SERVING, pb.HealthReply.NOT_SERVING


async def ask(channel: grpc.aio.Channel, service: str) -> int:
    reply = await channel.unary_unary(CHECK, *ENDS)(pb.HealthRequest(service=service), timeout=10)
    status: int = reply.status
    return status


@pytest.mark.parametrize("leads", [True, False])
async def test_leader_and_standby_are_told_apart(leads: bool) -> None:
    async with serving(leads=leads) as served, grpc.aio.insecure_channel(served.address) as channel:
        assert await ask(channel, "") == SERVING
        assert await ask(channel, LEADER) == (SERVING if leads else NOT_SERVING)
        assert await ask(channel, STANDBY) == (NOT_SERVING if leads else SERVING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, "no.such")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watch_hears_of_the_change() -> None:
    async with serving(leads=True) as served, grpc.aio.insecure_channel(served.address) as channel:
        watch = channel.unary_stream(WATCH, *ENDS)(pb.HealthRequest(service=LEADER))
        assert (await watch.read()).status == SERVING
        served.front.leader_term = None
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        unknown = channel.unary_stream(WATCH, *ENDS)(pb.HealthRequest(service="no.such"))
        assert (await unknown.read()).status == pb.HealthReply.SERVICE_UNKNOWN
        unknown.cancel()


async def test_the_probes_port_serves_nothing_else() -> None:
    async with serving(leads=True) as served:
        probes = HealthServer(served.server.health, "127.0.0.1:0")
        await probes.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{probes.port}") as channel:
                assert await ask(channel, LEADER) == SERVING
                for method in ("/holdfast.control.v1.Admin/Status", "/holdfast.control.v1.Admin/Submit"):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await channel.unary_unary(method)(b"", timeout=10)
                    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        finally:
            await probes.close()
