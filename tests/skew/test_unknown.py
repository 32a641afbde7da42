"""What a newer version says that nobody knows here: fields are passed over, words and messages refused by
name, and no stream ends. Every message type, every word, both sides, over real streams."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from agent.peers.wire import PeerCalls, channel, parser
from agent.relays.sending import BeatSender
from controlplane.access.client_credentials import plain
from controlplane.core.records import effects, events
from controlplane.core.records.logs import LogHead
from controlplane.core.records.model import Cause, MemberPhase, MemberStatus
from controlplane.wire import answers, codec, health_pb2, peer_pb2, relayed, versions
from controlplane.wire import control_pb2 as pb
from tests.agent.daemon.test_coordinator_link import Node, running
from tests.agent.peering import JOB, Side, read, values
from tests.agent.support import Leader, until
from tests.daemon.rig import Agent
from tests.daemon.rig import until as until_there
from tests.skew.between import Between
from tests.skew.newer import UNKNOWN, WORD, swollen, types_in, worded
from tests.skew.rolling import NEW, holdfast, of_version
from tests.wire.test_codec import FOR_DIAGNOSIS, FROM_AGENTS, ORDERS, sample

if TYPE_CHECKING:
    from pathlib import Path

    from tests.daemon.rig import Coordinator

ALONE = pb.AgentMessage.FromString(UNKNOWN)  # a message of which nobody here knows the body


def _told() -> list[pb.AgentMessage]:
    """One of each message that agents send, with a value in every field. The short heartbeat is like the
    whole one before it: an agent with any other is sent away."""
    whole = sample(events.NodeBeat)
    short = events.StepBeat("n1", 1, whole.seq + 1, whole.seq, *3 * [(1,) * len(whole.members)])
    made = [short if kind is events.StepBeat else sample(kind) for kind in (*FROM_AGENTS, *FOR_DIAGNOSIS)]
    return [codec.to_coordinator(dataclasses.replace(each, node="n1", incarnation=1)) for each in made]


def _ordered() -> list[pb.CoordinatorMessage]:
    """One of each order, with a value in every field."""
    return [codec.to_agent(dataclasses.replace(sample(kind), node="n0"), 1) for kind in ORDERS]


def _log_head() -> pb.LogPart:
    """How an agent begins to send a log."""
    return answers.head_message(sample(LogHead))


def _hello() -> pb.AgentMessage:
    return codec.hello(dataclasses.replace(sample(events.NodeJoined), node="n1", incarnation=1), "c", 0)


def test_a_field_that_is_unknown_is_passed_over_in_every_message_of_the_link() -> None:
    seen: dict[str, None] = {}
    for message in [*_told(), _hello()]:
        for name in types_in(message):
            newer = codec.parse_agent(swollen(message, name))
            assert newer != message, name
            assert _event(newer) == _event(message), name
            seen[name] = None
    for order in _ordered():
        for name in types_in(order):
            said = pb.CoordinatorMessage.FromString(swollen(order, name))
            assert codec.order_from(said, "n0") == codec.order_from(order, "n0"), name
            seen[name] = None
    head = _log_head()
    for name in types_in(head):
        assert answers.head_from(pb.LogPart.FromString(swollen(head, name))) == answers.head_from(head), name
        seen[name] = None
    sealed = _sealed()
    newer_beat = relayed.opened(swollen(sealed, "RelayedBeat"))
    assert relayed.step_beat(newer_beat) == relayed.step_beat(sealed)
    batch = relayed.batch(1, [sealed.SerializeToString()])
    relayed.check(codec.parse_agent(swollen(batch, "BeatsRelayed")).beats_relayed)
    seen |= dict.fromkeys(("RelayedBeat", "BeatsRelayed"))
    clock = pb.ClockReply(received_s=1.0, sent_s=2.0)
    assert pb.ClockReply.FromString(swollen(clock, "ClockReply")).sent_s == clock.sent_s
    seen |= dict.fromkeys(("ClockRequest", "ClockReply"))  # the one is empty, the other has only times
    seen |= dict.fromkeys(("Welcome", "Refused"))  # below, and of Admin in the test of the command line
    unseen = {name for name in pb.DESCRIPTOR.message_types_by_name if name not in seen}
    assert unseen == OF_TOOLS


OF_TOOLS = {
    *("ListLogsRequest", "ListLogsReply", "NodeLogs", "ReadLogRequest", "LogBlock", "LogTaken"),
    *("StacksRequest", "StacksReply", "RankStacks"),
    *("SubmitRequest", "SubmitReply", "StopRequest", "StopReply", "StatusRequest", "StatusReply"),
    *("JobRow", "NodeRow", "RankRow", "HealthRow", "DrainRequest", "CordonRequest", "MarkReply"),
    "DeleteRequest",
    *("PauseRequest", "CheckpointRequest", "ReleaseRequest", "ReleaseReply", "EventsRequest", "EventLine"),
    *("AdoptRequest", "AdoptReply", "DiagnoseRequest", "DiagnoseReply", "MuteRequest"),
    *("ProfileRequest", "ProfileReply"),
}


def _sealed() -> pb.RelayedBeat:
    return relayed.opened(relayed.seal("n1", 1, pb.StepBeat(seq=2, like=1), b"k"))


def _event(message: pb.AgentMessage) -> Any:
    if message.WhichOneof("body") == "hello":
        return codec.greeting_from(message)
    return codec.event_from("n1", 1, message)


async def test_a_leader_takes_what_newer_agents_add_to_every_message(
    shared_coordinator: Coordinator, shared_cluster: str
) -> None:
    before = _malformed(shared_coordinator)
    async with Agent(shared_coordinator.listen, "swollen") as agent:
        hello = codec.hello(agent.joined(), shared_cluster, 0)
        await agent.send(swollen(hello))
        assert (await agent.read()).WhichOneof("body") == "welcome"
        for message in _told():
            await agent.send(swollen(message))
        await _answers(agent, shared_coordinator)
    assert _malformed(shared_coordinator) == before + 1  # that of `_answers`


async def test_a_leader_refuses_what_it_cannot_know_by_name_and_hears_on(
    shared_coordinator: Coordinator, shared_cluster: str
) -> None:
    before, sent = _malformed(shared_coordinator), 0
    async with Agent(shared_coordinator.listen, "worded") as agent:
        assert (await agent.hello(shared_cluster)).WhichOneof("body") == "welcome"
        for message in _told():
            for where, newer in worded(message):
                sent += not where.endswith("cause")  # a failure of whatever cause is heard
                await agent.send(newer.SerializeToString())
        await agent.send(UNKNOWN)
        await until_there(lambda: _malformed(shared_coordinator) == before + sent + 1)
        await _answers(agent, shared_coordinator)
    assert sent >= 4
    log = shared_coordinator.log()
    assert f"MemberStatus.phase: '{WORD}' is not one of" in log
    assert (
        "of a newer version (field 16382, 16383)" in log or "of a newer version (field 16383, 16382)" in log
    )


async def test_a_member_that_cannot_be_read_costs_its_node_neither_stream_nor_ranks(
    shared_coordinator: Coordinator, shared_cluster: str
) -> None:
    members = tuple(MemberStatus(f"j.{n}", "j", MemberPhase.RUNNING) for n in (1, 2))
    async with Agent(shared_coordinator.listen, "partly") as agent:
        hello = codec.hello(agent.joined(members), shared_cluster, 0)
        hello.hello.members[0].phase = WORD
        await agent.send(hello.SerializeToString())
        assert (await agent.read()).WhichOneof("body") == "welcome"
        newer = codec.to_coordinator(events.NodeBeat("partly", 1, 1, 7, members))
        newer.beat.members[1].phase = WORD
        await agent.send(newer.SerializeToString())
        await until_there(lambda: _heard(shared_coordinator, "partly") == [["j.1"], ["j.2"]])
        await _answers(agent, shared_coordinator)


def _heard(coordinator: Coordinator, node: str) -> list[list[str]]:
    """The members that each hello and beat of a node could not tell."""
    lines = [line["body"] for line in coordinator.lines() if line["type"] in ("NodeJoined", "NodeBeat")]
    return [body["unread"] for body in lines if body["node"] == node and body["unread"]]


def test_what_can_be_read_of_a_beat_is_read() -> None:
    members = tuple(MemberStatus(f"j.{n}", "j", MemberPhase.RUNNING) for n in (1, 2))
    message = codec.to_coordinator(events.NodeBeat("n1", 1, 5, 7, members))
    message.beat.members[0].role = WORD
    rest = codec.rest_of("n1", 1, message)
    assert rest == events.NodeBeat("n1", 1, 5, 7, members[1:], unread=("j.1",))
    assert codec.rest_of("n1", 1, _told()[1]) is None


def test_a_failure_of_an_unknown_cause_is_a_failure() -> None:
    message = codec.to_coordinator(dataclasses.replace(sample(events.OrderFailed), node="n1", incarnation=1))
    message.order_failed.failure.cause, message.order_failed.failure.message = WORD, "it fell"
    event = codec.event_from("n1", 1, message)
    assert isinstance(event, events.OrderFailed)
    assert event.failure.cause is Cause.EXITED
    assert event.failure.message == f"it fell (its cause '{WORD}' is unknown here)"


async def _answers(agent: Agent, coordinator: Coordinator) -> None:
    """The stream stands: what is sent now is dropped by name, and counted."""
    before = _malformed(coordinator)
    await agent.send(b"")
    await until_there(lambda: _malformed(coordinator) == before + 1)
    assert not agent.call.done()


def _malformed(coordinator: Coordinator) -> float:
    return coordinator.samples()['holdfast_messages_dropped_total{reason="malformed"}']


async def test_an_agent_takes_what_a_newer_leader_adds_to_every_message() -> None:
    async with Leader() as leader:
        async with Between(f"127.0.0.1:{leader.port}", _swell) as wire:
            node = Node(wire.address)
            async with running(node):
                await until(lambda: node.link.up, "a welcome with an unknown field")
                for kind in ORDERS:
                    await leader.order(dataclasses.replace(sample(kind), node="n0"))
                await until(lambda: len(node.orders) == len(ORDERS), "every order")
        assert node.dropped == []
        assert len(leader.hellos) == 1


def _swell(_method: str, direction: str, data: bytes) -> bytes:
    kind = pb.AgentMessage if direction == "up" else pb.CoordinatorMessage
    return swollen(kind.FromString(data))


async def test_an_agent_refuses_orders_that_it_cannot_know_by_name_and_hears_on() -> None:
    said = [newer for message in _ordered() for _, newer in worded(message)]
    assert len(said) >= 4
    first = True

    def pass_on(_method: str, direction: str, data: bytes) -> bytes:
        nonlocal first
        if direction == "up" or first:
            first = direction == "up" and first
            return data
        return said.pop().SerializeToString() if said else data

    async with Leader() as leader, Between(f"127.0.0.1:{leader.port}", pass_on) as wire:
        node, count = Node(wire.address), len(said)
        async with running(node):
            for _ in range(count + 1):
                await leader.order(effects.Release("n0", "job", 7))
            await until(lambda: node.orders, "the order behind them")
        assert len(node.dropped) + len(node.orders) == count + 1
        reasons = [reason for _, reason in node.dropped]
        assert any(f"Launch.role: '{WORD}' is not one of" in reason for reason in reasons)
        assert any(f"Resume.tier: '{WORD}' is not one of" in reason for reason in reasons)
        assert len(leader.hellos) == 1


async def test_an_agent_waits_past_what_a_newer_leader_says_before_its_welcome() -> None:
    async with Leader() as leader:
        late = [UNKNOWN]  # the welcome goes on with the next message, in its place

        def pass_on(_method: str, direction: str, data: bytes) -> bytes:
            if direction == "up" or not late:
                return data
            if late == [UNKNOWN]:
                late.append(data)
            return late.pop(0)

        async with Between(f"127.0.0.1:{leader.port}", pass_on) as wire:
            node = Node(wire.address)
            async with running(node):
                await until(lambda: leader.hellos, "the hello")
                await leader.order(effects.Release("n0", "job", 7))
                await until(lambda: node.link.up, "the welcome behind it")
        assert len(leader.hellos) == 1
        assert ["of a newer version (field" in reason for _, reason in node.dropped] == [True]


@pytest.mark.parametrize("kind", [peer_pb2.PutMessage, peer_pb2.GetMessage])
def test_a_block_with_something_new_beside_it_is_a_block(kind: Any) -> None:
    data = kind(block=b"bytes").SerializeToString()
    assert bytes(parser(kind)(data)) == bytes(parser(kind)(data + UNKNOWN)) == b"bytes"


def fetched(side: Side) -> list[events.Fetched]:
    return [event for event in side.told if isinstance(event, events.Fetched)]


async def test_copies_travel_between_agents_of_which_one_is_newer(folder: Path) -> None:
    seen: dict[str, None] = {}

    def pass_on(method: str, direction: str, data: bytes) -> bytes:
        message = _PEER[method.rpartition("/")[2], direction].FromString(data)
        seen.update(types_in(message))
        return swollen(message)

    async with Side(folder, "a") as owner, Side(folder, "b") as partner:
        async with Between(partner.peers.address, pass_on) as wire:
            owner.replicate(("job.1", wire.address))
            owner.snapshot("job.1", values(1), 10)
            await partner.keeps("job.1", 10)
            assert partner.copy("job.1", 10) == read(owner.paths.arena("job.1"), 10)
            owner.peers.fetch(effects.Fetch("n0", "job.2", JOB, "job.1", 10, 1, wire.address))
            await until(lambda: fetched(owner), "the fetch")
            assert [event.reason for event in fetched(owner)] == [""]
            async with channel(wire.address) as called:
                await PeerCalls(called).drop(peer_pb2.DropRequest(member="job.1"), timeout=10)
                probe = peer_pb2.EchoRequest(job=JOB, payload=b"bytes")
                assert not (await PeerCalls(called).echo(probe, timeout=10)).busy
                look = peer_pb2.EchoRequest(job=JOB, look=True)
                assert (await PeerCalls(called).echo(look, timeout=10)).HasField("look")
                check = peer_pb2.EchoRequest(job=JOB, check=True)
                assert (await PeerCalls(called).echo(check, timeout=10)).HasField("check")
            await until(lambda: not partner.peers.copies(), "the drop")
            await _passed_on(partner, wire.address)
    known = set(peer_pb2.DESCRIPTOR.message_types_by_name)
    assert known - set(seen) <= {"Working"}, "said only where making room takes a second"


async def _passed_on(relay: Side, address: str) -> None:
    """A heartbeat goes through a relay, and is answered."""
    batches: list[pb.AgentMessage] = []
    relay.collector.welcomed(batches.append, 0.2, versions.NEW_WORDS)
    sender = BeatSender("n1", 1, plain())
    sender.welcomed(b"k" * relayed.KEY_BYTES)
    sender.order(relayed.RelayBeats("n1", "r", address))
    assert not sender.sends(pb.StepBeat(seq=1))
    await until(lambda: sender.route.open, "the stream")
    assert sender.sends(pb.StepBeat(seq=2))
    await until(lambda: batches, "a batch")
    relay.collector.taken(relayed.BeatsTaken("r", batches[0].beats_relayed.number))
    await until(lambda: sender.route.waits_for is None, "the answer")
    await sender.close()


_PEER: dict[tuple[str, str], Any] = {
    ("Put", "up"): peer_pb2.PutMessage,
    ("Put", "down"): peer_pb2.PutAnswer,
    ("Get", "up"): peer_pb2.GetRequest,
    ("Echo", "up"): peer_pb2.EchoRequest,
    ("Echo", "down"): peer_pb2.EchoReply,
    ("Get", "down"): peer_pb2.GetMessage,
    ("Have", "up"): peer_pb2.HaveRequest,
    ("Have", "down"): peer_pb2.HaveReply,
    ("Relay", "up"): peer_pb2.RelayRequest,
    ("Relay", "down"): peer_pb2.RelayAnswer,
    ("Drop", "up"): peer_pb2.DropRequest,
    ("Drop", "down"): peer_pb2.DropReply,
}


async def test_tools_of_which_one_side_is_newer_understand_each_other(
    shared_coordinator: Coordinator,
) -> None:
    async with Between(shared_coordinator.listen, lambda _method, _direction, data: data + UNKNOWN) as wire:
        for words in (["status"], ["events"], ["drain", "nowhere"]):
            command = [*holdfast(), *words, "--coordinator", wire.address]
            straight = [*command[:-1], shared_coordinator.listen]
            newer, same = [await _ended(each) for each in (command, straight)]
            assert newer.returncode == same.returncode, newer.stderr
            assert newer.stderr.replace(wire.address, "") == same.stderr.replace(
                shared_coordinator.listen, ""
            )


async def _ended(words: list[str]) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, words, env=of_version(NEW), text=True, capture_output=True, timeout=60, check=False
    )


async def test_a_state_of_health_that_is_unknown_is_passed_on(shared_coordinator: Coordinator) -> None:
    def pass_on(_method: str, direction: str, data: bytes) -> bytes:
        return data + (UNKNOWN if direction == "up" else bytes([0x08, 0x4D]))

    async with (
        Between(shared_coordinator.listen, pass_on) as wire,
        grpc.aio.insecure_channel(wire.address) as called,
    ):
        check = called.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthRequest.SerializeToString,
            health_pb2.HealthReply.FromString,
        )
        assert (await check(health_pb2.HealthRequest(), timeout=10)).status == 77
