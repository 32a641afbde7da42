"""A job's life through a real coordinator: launched, killed, re-formed, through restarts and without etcd."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.core.records import effects
from controlplane.core.records.model import CheckpointRecord, JobSpec, MemberPhase, Tier
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.rows import Put, absent
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from controlplane.wire.records import pack
from tests.daemon.hand import Hand
from tests.daemon.rig import Agent, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.daemon.etcd.server import PrivateEtcd
    from tests.daemon.rig import Coordinator

SPEC = JobSpec("job", ("train.py",), "/", env=(("TOKEN", "secret"),), nproc_per_node=2, spares_per_node=1)


class Tool:
    """What a person's tool does."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self.stub = AdminStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Tool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    async def submit(self, spec: JobSpec = SPEC) -> pb.SubmitReply:
        reply: pb.SubmitReply = await self.stub.Submit(pb.SubmitRequest(spec=codec.spec_message(spec)))
        return reply

    async def status(self) -> pb.StatusReply:
        reply: pb.StatusReply = await self.stub.Status(pb.StatusRequest(), wait_for_ready=True)
        return reply

    async def events(self, **request: Any) -> list[dict[str, Any]]:
        call = self.stub.Events(pb.EventsRequest(**request))
        return [json.loads(line.json) async for line in call]

    async def running(self, generation: int) -> pb.StatusReply:
        """Wait until the job runs in this generation."""
        return await self.reach("running", generation)

    async def reach(self, phase: str, generation: int) -> pb.StatusReply:
        """Wait until the job is in this phase with this generation."""
        async with asyncio.timeout(20):
            while True:
                status = await self.status()
                row = status.jobs[0]
                if (row.phase, row.generation) == (phase, generation):
                    return status
                await asyncio.sleep(0.01)


def _of_rank(status: pb.StatusReply, rank: int) -> str:
    return next(row.member for row in status.ranks if row.rank == rank)


async def test_a_killed_rank_from_report_to_form(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make().start()
    await one.leads()
    async with Tool(one.listen) as tool, Hand(one.listen) as agent:
        await agent.work(cluster)
        assert not (await tool.submit()).resumed
        status = await tool.running(1)
        assert [(node.node, node.state) for node in status.nodes] == [("n1", "up")]
        victim = _of_rank(status, 1)
        await until(lambda: MemberPhase.READY in [each.phase for each in agent.members.values()])
        await agent.die(victim)
        status = await tool.running(2)
        assert _of_rank(status, 1) != victim
        forms = [order for _, order in agent.orders if isinstance(order, effects.Form)]
        assert forms[-1].generation.resume.tier is Tier.DONOR
        await until(lambda: one.samples().get(_closed("spare", "recovered")) == 1)
        _check_order(await tool.events(job="job"), victim)
        assert "secret" not in one.journal.read_text()
        samples = one.samples()
        of_job = 'training_job="job"}'
        assert samples[f'holdfast_failures_detected_total{{cause="signaled",level="rank",{of_job}'] == 1
        assert samples[f'holdfast_recovery_seconds_count{{phase="fence",{of_job}'] == 1
        await until(lambda: one.samples().get('holdfast_generation{training_job="job"}') == 2)


def _closed(strategy: str, outcome: str) -> str:
    labels = f'outcome="{outcome}",strategy="{strategy}",training_job="job",whose="cluster"'
    return f"holdfast_incidents_total{{{labels}}}"


def _check_order(lines: list[dict[str, Any]], victim: str) -> None:
    """Persist before speaking: reported, judged, interrupted, stored, formed, in this order."""
    assert [line["sequence"] for line in lines] == sorted(line["sequence"] for line in lines)
    reported = next(
        line["sequence"]
        for line in lines
        if line["type"] == "MemberReport"
        and (line["body"]["status"]["member"], line["body"]["status"]["phase"]) == (victim, "exited")
    )
    after = [line for line in lines if line["sequence"] > reported and line["kind"] == "effect"]
    firsts = {line["type"]: line["sequence"] for line in reversed(after)}
    order = [firsts[name] for name in ("Judged", "Interrupt", "StoreJob", "Form")]
    assert order == sorted(order)


async def test_events_followed_while_they_come(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make().start()
    await one.leads()
    async with Tool(one.listen) as tool, Hand(one.listen) as agent:
        await agent.work(cluster)
        call = tool.stub.Events(pb.EventsRequest(follow=True, job="job"))
        await tool.submit()
        seen: list[str] = []
        async with asyncio.timeout(20):
            async for line in call:
                seen.append(json.loads(line.json)["type"])
                if seen[-1] == "Form":
                    break
        assert seen[0] == "JobSubmitted"
        call.cancel()


async def test_steady_beats_do_not_grow_the_journal(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make().start()
    await one.leads()
    async with Tool(one.listen) as tool, Hand(one.listen) as agent:
        await agent.work(cluster)
        await tool.submit()
        await tool.running(1)
        await agent.beat(*agent.members.values())
        before = len(await tool.events())
        for _ in range(200):
            await agent.beat(*agent.members.values())
        await until(lambda: one.samples()["holdfast_heartbeats_total"] == 201)
        grown = len(await tool.events()) - before
        assert grown < 20, "a line per steady beat"


async def test_a_restarted_coordinator_finds_the_job_running(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    one = await make().start()
    await one.leads()
    async with Tool(one.listen) as tool:
        async with Hand(one.listen) as agent:
            await agent.work(cluster)
            await tool.submit()
            members = {row.member for row in (await tool.running(1)).ranks}
            one.kill()
        await one.start()
        await one.leads()
        async with Hand(one.listen) as again:
            again.members, again.seq = agent.members, agent.seq
            await again.work(cluster)
            status = await tool.running(1)
            assert {row.member for row in status.ranks} == members
            assert not any(isinstance(order, effects.Launch | effects.Kill) for _, order in again.orders)
            await again.die(_of_rank(status, 0))
            await tool.running(2)


async def test_without_etcd_streams_stay_and_decisions_wait(
    make: Callable[..., Coordinator], cluster: str, own_server: PrivateEtcd
) -> None:
    one = await make(etcd=own_server.endpoint, lease_ttl_s=29.0).start()
    await one.leads()
    async with Tool(one.listen) as tool, Hand(one.listen) as agent:
        await agent.work(cluster)
        await tool.submit()
        status = await tool.running(1)
        await own_server.stop()
        await agent.die(_of_rank(status, 1))
        await tool.reach("storing", 1)
        await agent.beat(*agent.members.values())
        await until(lambda: one.samples()["holdfast_heartbeats_total"] == 1)
        assert agent.formed(2) == 0.0
        await own_server.start()
        await tool.running(2)
        assert one.samples()["holdfast_agent_connections"] == 1


async def test_two_agents_of_one_name(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make().start()
    await one.leads()
    async with Agent(one.listen) as first, Agent(one.listen, incarnation=2) as other:
        assert (await first.hello(cluster)).WhichOneof("body") == "welcome"
        answer = await other.hello(cluster, launcher="another")
        assert "give this agent a name of its own" in answer.refused.reason
        async with Agent(one.listen, incarnation=3) as newer, Agent(one.listen, incarnation=2) as older:
            assert (await newer.hello(cluster)).WhichOneof("body") == "welcome"
            code, details = await first.ended()
            assert code is grpc.StatusCode.ABORTED and "a newer stream of node n1" in details
            assert "is older than 3" in (await older.hello(cluster)).refused.reason
            await newer.beat()
            await until(lambda: one.samples()["holdfast_heartbeats_total"] == 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": "a/b"}, "job name 'a/b' is invalid"),
        ({"argv": ()}, "names no script"),
        ({"nproc_per_node": 0}, "nproc_per_node 0 is invalid: give 1"),
        ({"spares_per_node": -1}, "spares_per_node -1"),
        ({"nnodes_min": 3}, "the minimum is larger than the maximum"),
        ({"checkpoint_every": 15}, "is not a multiple of snapshot_every"),
    ],
)
async def test_jobs_that_cannot_be(
    shared_coordinator: Coordinator, changes: dict[str, Any], said: str
) -> None:
    async with Tool(shared_coordinator.listen) as tool:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await tool.submit(dataclasses.replace(SPEC, **changes))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in (caught.value.details() or "")


def _found(step: int, generation: int, **changes: Any) -> pb.CheckpointRecord:
    name = f"{step}-{generation}"
    record = CheckpointRecord(
        "lost", name, step, generation, "full", name, "d" * 64, 10, 10, ((0, step),), True
    )
    message: pb.CheckpointRecord = codec.row_message(dataclasses.replace(record, **changes))
    return message


async def test_after_a_disaster_checkpoints_found_on_storage_are_adopted_and_kept(
    make: Callable[..., Coordinator], cluster: str, own_server: PrivateEtcd
) -> None:
    one = await make(etcd=own_server.endpoint).start()
    await one.leads()
    request = pb.AdoptRequest(job="lost", records=[_found(100, 3), _found(200, 7), _found(50, 1, bad="rot")])
    async with Tool(one.listen) as tool:
        for _ in range(2):
            reply = await tool.stub.Adopt(request)
            assert list(reply.adopted) == ["100-3", "200-7"]
            assert list(reply.refused) == ["50-1: it is marked bad: rot"]
        other = await tool.stub.Adopt(
            pb.AdoptRequest(job="lost", records=[_found(200, 7, manifest_digest="e")])
        )
        assert list(other.refused) == [f"200-7: etcd holds another 200-7: digest {'d' * 64}, not e"]
        with pytest.raises(grpc.aio.AioRpcError, match="job") as caught:
            await tool.stub.Adopt(pb.AdoptRequest(job="../etc", records=[]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    async with Etcd(own_server.target) as etcd:
        keys = Keyspace(cluster)
        rows = {row.key: row.value for row in (await etcd.list(keys.prefix)).rows}
    assert rows[keys.latest("lost")] == b"200-7"
    one.kill()
    two = await make(etcd=own_server.endpoint).start()
    await two.leads()
    async with Tool(two.listen) as tool, Hand(two.listen) as agent:
        await agent.work(cluster)
        await tool.submit(dataclasses.replace(SPEC, job="lost", storage="file:///c"))
        status = await tool.status()
        assert [record.id for record in status.checkpoints] == ["100-3", "200-7"]
        await until(lambda: any(isinstance(order, effects.Load) for _, order in agent.orders))
        load = next(order for _, order in agent.orders if isinstance(order, effects.Load))
        assert load.record.id == "200-7"
        assert (await tool.status()).jobs[0].generation > 7


async def test_stopping_what_is_not_there(shared_coordinator: Coordinator) -> None:
    async with Tool(shared_coordinator.listen) as tool:
        with pytest.raises(grpc.aio.AioRpcError, match="there is no job 'ghost'") as caught:
            await tool.stub.Stop(pb.StopRequest(job="ghost"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_journal_on_a_full_disk_stops_nobody(make: Callable[..., Coordinator], cluster: str) -> None:
    one = await make(journal="/dev/full").start()
    await one.leads()
    async with Hand(one.listen) as agent:
        assert (await agent.work(cluster)).WhichOneof("body") == "welcome"
        await until(lambda: one.samples()["holdfast_journal_lines_lost"] > 0)
    assert "No space left" in one.log()


async def test_etcd_records_that_cannot_be_read_cost_their_job_only(
    make: Callable[..., Coordinator], cluster: str, own_server: PrivateEtcd
) -> None:
    keys = Keyspace(cluster)
    good, bad = keys.spec("good"), keys.spec("bad")
    async with Etcd(own_server.target) as etcd:
        await etcd.txn(
            [absent(good)],
            [Put(good, pack(JobSpec("good", ("t.py",), "/"))), Put(bad, b'{"v":1,"job":7}')],
        )
    one = await make(etcd=own_server.endpoint).start()
    await one.leads()
    async with Tool(one.listen) as tool:
        assert [row.job for row in (await tool.status()).jobs] == ["good"]
    assert "job bad is left alone" in one.log()
