"""Agents measure their links over their real peer services, within the budget of the order."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from agent.host.cpu_clock import CpuClock
from agent.links import prober
from agent.links.prober import LinkProber
from agent.peers import wire
from agent.peers.server import ECHO_S, BurstTurns
from controlplane.access.client_credentials import plain
from controlplane.core.records.diagnosis import LinkProbe, LinksProbed, ProbeLinks
from controlplane.core.records.model import PeerAddress
from controlplane.wire import peer_pb2 as pb
from tests.agent.peering import JOB, Side
from tests.agent.support import AgentProcess, Leader, until

if TYPE_CHECKING:
    from pathlib import Path


BYTES, BURST_S = 1 << 20, 5.0


async def probed(*peers: PeerAddress, bytes_max: int = BYTES, burst_s: float = BURST_S) -> LinksProbed:
    """What node a measures on its links to these peers."""
    answers: list[LinksProbed] = []
    links = LinkProber("a", 7, answers.append, plain())
    links.order(ProbeLinks("a", JOB, 3, peers, 0.0, bytes_max, burst_s))
    await until(lambda: bool(answers), "the answer to a probe")
    await links.stop()
    (answer,) = answers
    assert (answer.node, answer.incarnation, answer.job, answer.round) == ("a", 7, JOB, 3)
    assert [each.node for each in answer.found] == [peer.node for peer in peers]
    return answer


async def one(side: Side, **order: float) -> LinkProbe:
    """What is measured on the way to one side."""
    answer = await probed(PeerAddress(side.name, side.peers.address), **order)  # type: ignore[arg-type]
    return answer.found[0]


async def test_a_link_is_measured_within_its_bytes(base: Path) -> None:
    async with Side(base, "b") as far:
        found = await one(far)
        assert found.reason == "" and found.rtt_s > 0 and found.bytes_per_s > 0
        assert found.bytes == 15 * prober.BLOCK_BYTES  # blocks of 1, 2, 4 and 8 units
        assert far.peers.counts["peer_probed_bytes"] == found.bytes


async def test_a_probe_says_how_long_both_ends_ran_and_waited(base: Path) -> None:
    async with Side(base, "b") as far:
        found = await one(far)
        assert found.here is not None and found.there is not None
        for end in (found.here, found.there):
            assert end.ran_s > 0.0 and end.waited_s >= 0.0 and end.rtt_waited_s >= 0.0
        assert found.block_s > 0.0


async def test_a_node_that_counts_nothing_is_not_said_to_be_calm(base: Path) -> None:
    async with Side(base, "b") as far:
        peer = PeerAddress("b", far.peers.address)
        order = ProbeLinks("a", JOB, 3, (peer,), 0.0, BYTES, BURST_S)
        found = await prober.probe(peer, order, plain(), CpuClock(base / "absent"))
        assert found.reason == "" and found.bytes_per_s > 0
        assert found.here is None and found.there is not None


async def test_the_calm_of_a_peer_of_an_older_version_is_not_known() -> None:
    """Its Echo ignores fields that it does not know, and answers without them."""

    async def echo(_request: Any, _context: Any) -> Any:
        return pb.EchoReply()

    older = grpc.aio.server(options=wire.OPTIONS)
    method = grpc.unary_unary_rpc_method_handler(
        echo, pb.EchoRequest.FromString, pb.EchoReply.SerializeToString
    )
    older.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, {"Echo": method}),))
    port = older.add_insecure_port("127.0.0.1:0")
    await older.start()
    (found,) = (await probed(PeerAddress("b", f"127.0.0.1:{port}"))).found
    assert found.reason == "" and found.bytes_per_s > 0
    assert found.here is not None and found.there is None
    await older.stop(None)


async def test_a_first_turn_comes_when_the_order_says(base: Path) -> None:
    async with Side(base, "b") as far:
        answers: list[LinksProbed] = []
        links = LinkProber("a", 7, answers.append, plain())
        order = ProbeLinks("a", JOB, 3, (PeerAddress("b", far.peers.address),), 0.0, BYTES, BURST_S)
        began = time.monotonic()
        links.order(dataclasses.replace(order, begins_s=0.5))
        await until(lambda: bool(answers), "the answer to a probe")
        assert time.monotonic() - began >= 0.5
        await links.stop()


async def test_a_burst_ends_with_its_time(base: Path) -> None:
    async with Side(base, "b") as far:
        assert (await one(far, burst_s=0.0)).bytes == prober.BLOCK_BYTES


async def test_an_order_without_bytes_measures_nothing(base: Path) -> None:
    async with Side(base, "b") as far:
        found = await one(far, bytes_max=10)
        assert found.reason == "the order allows no bytes" and found.bytes == 0


async def test_no_order_makes_a_burst_larger_than_an_agent_allows(base: Path) -> None:
    async with Side(base, "b") as far:
        found = await one(far, bytes_max=1 << 50, burst_s=1e9)
        assert 0 < found.bytes <= prober.BURST_BYTES_MAX


async def test_a_peer_that_is_gone_or_has_no_address_is_named_with_the_reason(base: Path) -> None:
    async with Side(base, "b") as far, Side(base, "c") as gone:
        where = gone.peers.address
        await gone.peers.stop()
        peers = (PeerAddress("c", where), PeerAddress("d", ""), PeerAddress("b", far.peers.address))
        lost, nowhere, well = (await probed(*peers)).found
        assert lost.reason.startswith("UNAVAILABLE") and lost.bytes_per_s == 0.0
        assert nowhere.reason and nowhere.bytes_per_s == 0.0
        assert well.reason == ""


async def test_an_agent_of_an_older_version_is_no_slow_link() -> None:
    older = grpc.aio.server()
    port = older.add_insecure_port("127.0.0.1:0")
    await older.start()
    (found,) = (await probed(PeerAddress("b", f"127.0.0.1:{port}"))).found
    assert found.reason.startswith("UNIMPLEMENTED") and found.rtt_s == 0.0
    await older.stop(None)


def test_of_two_bursts_at_once_the_second_is_told_to_measure_nothing() -> None:
    turns = BurstTurns()
    assert turns.admits("a", 5.0) and turns.admits("a", 5.05)
    assert not turns.admits("b", 5.05 + 0.9 * ECHO_S)
    assert turns.admits("b", 5.05 + 1.1 * ECHO_S)
    assert not turns.admits("a", 5.05 + 1.2 * ECHO_S)


async def test_a_newer_order_of_a_job_replaces_the_older_one(base: Path) -> None:
    async with Side(base, "b") as far:
        answers: list[LinksProbed] = []
        links = LinkProber("a", 7, answers.append, plain())
        peer = PeerAddress("b", far.peers.address)
        links.order(ProbeLinks("a", JOB, 1, (peer, peer), 10.0, BYTES, BURST_S))
        links.order(ProbeLinks("a", JOB, 2, (peer,), 10.0, BYTES, BURST_S))
        await until(lambda: bool(answers), "the answer to a probe")
        assert [each.round for each in answers] == [2]
        await links.stop()


async def test_real_agents_probe_themselves_and_each_other(base: Path) -> None:
    async with Leader() as leader, Side(base, "b") as far:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}", address="127.0.0.1")
        try:
            greeting = await leader.hello(1)
            assert "probe_links" in greeting.takes
            peers = (PeerAddress("n0", greeting.joined.peer), PeerAddress("b", far.peers.address))
            await leader.order(ProbeLinks("n0", JOB, 5, peers, 0.1, BYTES, BURST_S))
            await until(lambda: leader.of(LinksProbed), "the answer to a probe")
            (answer,) = leader.of(LinksProbed)
            assert answer.round == 5 and [each.node for each in answer.found] == ["n0", "b"]
            assert all(each.bytes_per_s > 0 and not each.reason for each in answer.found)
        finally:
            await agent.end()
