"""An etcd whose quota is used up: it answers, and takes no writes. It is said, and over once it is cured."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.daemon.leadership.test_etcd_away import submit
from tests.daemon.rig import Coordinator, until

if TYPE_CHECKING:
    from pathlib import Path


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


def alerted(one: Coordinator) -> list[dict[str, Any]]:
    """What its journal has of this finding: opened, resolved."""
    return [
        line["body"]
        for line in one.lines()
        if line["type"] == "Alert" and line["body"]["kind"] == "dcs_unavailable"
    ]
