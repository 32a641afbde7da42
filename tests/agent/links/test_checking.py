"""A check of a node asks real peers for the time, and sends a burst where nothing is disturbed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from agent.links import checking
from agent.peers import wire
from agent.peers.server import AT_WORK
from controlplane.access.client_credentials import plain
from controlplane.analysis.node_checks import findings, judge
from controlplane.core.records.model import PeerAddress
from controlplane.wire import peer_pb2 as pb
from holdfast.node_check.reading import NodeReading
from tests.agent.peering import Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


def address(side: Side) -> PeerAddress:
    return PeerAddress(side.name, side.peers.address)


@pytest.fixture
async def made_up() -> AsyncIterator[Callable[[Any], Any]]:
    """Serve Echo with one made-up answer to every call; gives the address."""
    servers = []

    async def serve(answer: Callable[[], Any]) -> PeerAddress:
        async def echo(_request: Any, _context: Any) -> Any:
            return answer()

        server = grpc.aio.server(options=wire.OPTIONS)
        kinds = pb.EchoRequest.FromString, pb.EchoReply.SerializeToString
        methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo, *kinds)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        return PeerAddress("b", f"127.0.0.1:{port}")

    yield serve
    for each in servers:
        await each.stop(None)


async def test_the_clock_of_this_machine_is_not_ahead_of_itself(base: Path) -> None:
    async with Side(base, "b") as far:
        offset, bandwidth = await checking.peer_readings(address(far), plain())
        assert (offset.name, bandwidth.name) == ("clock.offset:b", "link.bandwidth:b")
        assert offset.value is not None and abs(offset.value) <= offset.within
        assert bandwidth.value is not None and bandwidth.value > 0.0 and not bandwidth.reason
        assert 0 < far.peers.counts["peer_probed_bytes"] <= checking.BURST_BYTES


@pytest.mark.parametrize("why", [AT_WORK, "a rank lives there"])
async def test_a_node_that_must_not_be_disturbed_is_sent_nothing(base: Path, why: str) -> None:
    async with Side(base, "b") as far:
        far.disturbs = why
        offset, bandwidth = await checking.peer_readings(address(far), plain())
        assert offset.value is not None
        assert (bandwidth.value, bandwidth.reason) == (None, why)
        assert far.peers.counts["peer_probed_bytes"] == 0


async def test_who_does_not_answer_is_named_and_accuses_nobody(base: Path) -> None:
    async with Side(base, "b") as far:
        where = address(far)
    for peer in (where, PeerAddress("d", "")):
        found = await checking.peer_readings(peer, plain())
        assert all(each.value is None and each.reason for each in found)
        assert findings("n1", judge(found, [])) == ()


async def test_an_agent_of_an_earlier_version_is_sent_no_burst(made_up: Any) -> None:
    found = await checking.peer_readings(await made_up(pb.EchoReply), plain())
    assert [each.reason for each in found] == [checking.OLDER] * 2


@pytest.mark.parametrize(("ahead_s", "words"), [(90.0, "90 s behind"), (-3.0, "3 s ahead of")])
async def test_a_clock_that_is_off_is_named(made_up: Any, ahead_s: float, words: str) -> None:
    def answer() -> Any:
        now = time.time() + ahead_s
        return pb.EchoReply(check=pb.CheckLook(received_s=now, sent_s=now, disturbs="x"))

    (offset, _) = await checking.peer_readings(await made_up(answer), plain())
    assert offset.value is not None and abs(offset.value + ahead_s) <= offset.within + 1e-3
    (found,) = findings("n1", judge([offset], []))
    assert words in found.reason and "that of b" in found.reason


@pytest.mark.parametrize(
    "times",
    [(0.0, 0.0), (-1.0, -1.0), (float("nan"), 1.0), (float("inf"), float("inf")), (5e9, 4e9), (1e300, 1e300)],
)
async def test_times_that_cannot_be_are_no_offset(made_up: Any, times: tuple[float, float]) -> None:
    look = pb.CheckLook(received_s=times[0], sent_s=times[1], disturbs="x")
    found = await checking.peer_readings(await made_up(lambda: pb.EchoReply(check=look)), plain())
    assert findings("n1", judge(found, [])) == ()


def test_of_several_peers_the_middle_one_counts() -> None:
    def reading(node: str, value: float | None, reason: str = "") -> NodeReading:
        return NodeReading(f"link.bandwidth:{node}", value, "B/s", reason=reason)

    assert checking.middle([reading("a", 9.0), reading("b", 1.0), reading("c", 8.0)]).value == 8.0
    assert checking.middle([reading("a", 9.0), reading("b", None, "gone")]).value == 9.0
    none = checking.middle([reading("a", None, "gone"), reading("b", None, AT_WORK)])
    assert (none.name, none.value) == ("link.bandwidth", None) and none.reason == f"a: gone; b: {AT_WORK}"
    assert checking.middle([]).reason == "no other node is idle"


async def test_a_coordinator_of_an_earlier_version_is_named() -> None:
    older = grpc.aio.server()
    port = older.add_insecure_port("127.0.0.1:0")
    await older.start()
    found = await checking.coordinator_offset(f"127.0.0.1:{port}", plain())
    assert (await checking.coordinator_offset("", plain())).reason == "nobody leads"
    assert found.value is None and "earlier version" in found.reason
    await older.stop(None)
