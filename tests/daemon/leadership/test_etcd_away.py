"""A leader on three real etcd members: one lost, the quorum lost; a leader frozen past its lease."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from controlplane.core.records.model import JobSpec
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.daemon.etcd_members import leader_of, three_members
from tests.daemon.rig import Agent, Coordinator, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TTL_S = 3.0


async def submit(address: str, job: str, timeout_s: float = 15.0) -> None:
    spec = codec.spec_message(JobSpec(job, ("train.py",), "/"))
    async with grpc.aio.insecure_channel(address) as channel:
        await AdminStub(channel).Submit(pb.SubmitRequest(spec=spec), timeout=timeout_s)  # type: ignore[no-untyped-call]


async def test_a_member_lost_then_the_quorum_then_all_is_back(folder: Path, cluster: str) -> None:
    async with three_members() as members:
        etcd = ",".join(member.endpoint for member in members)
        one = await Coordinator(folder, etcd, cluster, lease_ttl_s=TTL_S).start()
        try:
            await one.leads()
            await submit(one.listen, "before")
            first = await leader_of(members)
            first.kill()
            await submit(one.listen, "one-member-lost")
            second = next(member for member in members if member is not first)
            second.signal(signal.SIGSTOP)
            await until(lambda: one.samples()["holdfast_dcs_unavailable"] == 1 or _over(one))
            await until(lambda: _over(one), timeout_s=TTL_S + 10)
            with pytest.raises(grpc.aio.AioRpcError, match="standby"):
                await submit(one.listen, "without-quorum", timeout_s=5)
            second.signal(signal.SIGCONT)
            await until(lambda: one.samples()["holdfast_leader"] == 1, timeout_s=40)
            await submit(one.listen, "after")
            async with grpc.aio.insecure_channel(one.listen) as channel:
                reply = await AdminStub(channel).Status(pb.StatusRequest(), timeout=10)  # type: ignore[no-untyped-call]
            assert {"before", "one-member-lost", "after"} <= {row.job for row in reply.jobs}
        finally:
            one.end()


def _over(one: Coordinator) -> bool:
    return one.samples()["holdfast_leader"] == 0


async def test_a_leader_frozen_past_its_lease_fences_itself_before_it_speaks(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one = await make("a", lease_ttl_s=TTL_S).start()
    await one.leads()
    two = await make("b", lease_ttl_s=TTL_S).start()
    async with Agent(one.listen) as agent:
        term = (await agent.hello(cluster)).term
        os.kill(one.pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        for _ in range(50):
            await agent.beat()  # they wait in its socket, and are there first when it wakes
        await two.leads()
        failover_s = time.monotonic() - frozen_at
        await submit(two.listen, "by-the-new-one")
        os.kill(one.pid, signal.SIGCONT)
        said = await agent.order(codec.Refused)
        assert said.retry and "no longer leads" in said.reason
    assert failover_s < 2 * TTL_S + 10, "the lease, and a busy machine"
    stale = [line for line in one.lines() if line["term"] == term and line["kind"] == "effect"]
    await until(lambda: any(line["type"] == "LeadershipEnded" for line in one.lines()))
    assert "Traceback" not in one.log(), "that its time is over is no failure of the coordinator's"
    assert all(line["type"] in ("Admit", "StoreJob", "StoreNode", "Note", "Alert") for line in stale), stale
