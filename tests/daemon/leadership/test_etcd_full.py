"""An etcd whose quota is used up: it answers, and takes no writes. It is said once, and over once it is
cured; coordinators wait for that."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.daemon.etcd.election import RETRY_S, Election
from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.daemon.etcd_fixtures import client_of
from tests.daemon.leadership.test_etcd_away import submit
from tests.daemon.rig import Coordinator, until

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.daemon.etcd.keyspace import Keyspace


def called(etcd: PrivateEtcd, path: str, **body: Any) -> dict[str, Any]:
    """Call etcd's own API."""
    request = urllib.request.Request(f"http://{etcd.endpoint}/v3/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        return dict(json.load(reply))


async def alarm(etcd: PrivateEtcd, action: str) -> None:
    """Raise or disarm etcd's alarm of no space."""
    (member,) = (await asyncio.to_thread(called, etcd, "cluster/member/list"))["members"]
    of_space = {"action": action, "memberID": member["ID"], "alarm": "NOSPACE"}
    await asyncio.to_thread(called, etcd, "maintenance/alarm", **of_space)


async def health(one: Coordinator) -> str:
    async with grpc.aio.insecure_channel(one.listen) as channel:
        reply = await AdminStub(channel).Status(pb.StatusRequest(), timeout=10)  # type: ignore[no-untyped-call]
    return f"{reply.health.level} {list(reply.health.reasons)}"


async def test_a_full_etcd_is_said_until_it_has_room_again(folder: Path, cluster: str) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        one = await Coordinator(folder, etcd.endpoint, cluster).start()
        try:
            await one.leads()
            await submit(one.listen, "before")
            await alarm(etcd, "ACTIVATE")
            with pytest.raises(grpc.aio.AioRpcError, match="is full"):
                await submit(one.listen, "meanwhile")
            await until(lambda: alerted(one))
            assert alerted(one)[0]["reason"].startswith("etcd takes no writes (")
            assert "is full: compact and defragment it" in await health(one)
            await alarm(etcd, "DEACTIVATE")
            await until(lambda: len(alerted(one)) == 2)
            assert "takes no writes" not in await health(one)
            await submit(one.listen, "after")
        finally:
            one.end()


async def test_who_is_to_be_elected_waits_until_there_is_room(
    folder: Path, cluster: str, keys: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        await alarm(etcd, "ACTIVATE")
        one = await Coordinator(folder, etcd.endpoint, cluster).start()
        try:
            await until(lambda: refused(one))
            with pytest.raises(grpc.aio.AioRpcError, match=r"nobody leads: etcd at .* is full: compact"):
                await health(one)
            async with client_of(etcd.endpoint) as client:
                election = Election(client, keys, b"me", ttl_s=6)
                campaign = asyncio.create_task(election.campaign())
                await asyncio.sleep(3 * RETRY_S)
                assert "is full" in election.trouble and not campaign.done()
                await alarm(etcd, "DEACTIVATE")
                async with await campaign as leadership:
                    assert leadership.held and election.trouble == ""
            await one.leads()
            assert len(refused(one)) == 1
        finally:
            one.end()
    refusal, over = (text for text in caplog.messages if CANDIDACY in text)
    assert refusal.startswith(f"etcd did not accept {CANDIDACY}: etcd at ")
    assert over.startswith(f"etcd accepts {CANDIDACY} again, after ")


CANDIDACY = "the candidacy of this coordinator"


def refused(one: Coordinator) -> list[str]:
    """What its log says of that."""
    return [line for line in one.log().splitlines() if f"did not accept {CANDIDACY}" in line]


def alerted(one: Coordinator) -> list[dict[str, Any]]:
    """What its journal has of this finding: opened, resolved."""
    return [
        line["body"]
        for line in one.lines()
        if line["type"] == "Alert" and line["body"]["kind"] == "dcs_unavailable"
    ]
