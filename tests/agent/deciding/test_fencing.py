"""When a node that hears nobody stops its ranks, and whom it reaches."""

from __future__ import annotations

import asyncio
import socket

import pytest

from agent.deciding.fencing import Fence
from agent.peers.dialling import dial, sight
from controlplane.core.records.model import PeerAddress


def test_silence_of_one_that_may_lead_is_what_counts() -> None:
    fence = Fence(["a:1", "b:1"], 120.0, now=0.0)
    assert fence.due(120.0) == ""
    assert fence.due(121.0) == "a:1"
    fence.note_contact(130.0)
    assert fence.due(250.0) == ""
    for now in range(130, 1000, 10):
        fence.absent("a:1", float(now))
    assert fence.due(995.0) == "b:1", "a is down, b may lead beyond a cut network"


def test_coordinators_that_are_down_never_stop_training() -> None:
    fence = Fence(["a:1"], 120.0, now=0.0)
    for now in range(0, 100_000, 60):
        fence.absent("a:1", float(now))
        assert fence.due(float(now) + 59) == ""
    fence.absent("another:1", 1e6)
    assert fence.due(1e6) == "a:1"


def test_off_is_never() -> None:
    assert Fence(["a:1"], 0.0, now=0.0).due(1e9) == ""


@pytest.mark.process
async def test_a_peer_that_listens_is_reached_and_others_are_told_why() -> None:
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    async with server:
        found = await sight(PeerAddress("n1", f"127.0.0.1:{port}"))
        assert (found.tries, found.failed, found.reason) == (3, 0, "")
        lost = await sight(PeerAddress("n2", f"127.0.0.1:{closed}"))
    assert (lost.tries, lost.failed) == (3, 3)
    assert lost.reason == "Connection refused"
    assert await dial("nowhere", 0.1) != ""
