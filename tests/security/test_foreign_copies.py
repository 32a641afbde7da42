"""What an agent says of copies is held against the jobs for which it may speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.access.client_credentials import plain
from controlplane.core.records.events import NodeBeat, NodeJoined
from controlplane.core.records.model import PeerCopy
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.daemon.rig import until
from tests.security.authority import CLUSTER
from tests.security.serving import OPTIONS, serving

if TYPE_CHECKING:
    from tests.security.authority import Authority

MINE = PeerCopy("mine.1", "mine", 0, "all", 10, 1)
OTHERS = PeerCopy("other.1", "other", 0, "all", 398, 1)
NODE = ("n1", 1)


def hello(*copies: PeerCopy) -> pb.AgentMessage:
    joined = NodeJoined(*NODE, "l1", "127.0.0.1", 1, 29500, peer="127.0.0.1:1", copies=copies)
    return codec.hello(joined, CLUSTER, 0)


def beat(seq: int, *copies: PeerCopy) -> pb.AgentMessage:
    return codec.to_coordinator(NodeBeat(*NODE, seq, 29500, (), copies))


def link(channel: Any) -> Any:
    """An agent's stream."""
    return channel.stream_stream(
        "/holdfast.control.v1.Control/Link",
        request_serializer=pb.AgentMessage.SerializeToString,
        response_deserializer=pb.CoordinatorMessage.FromString,
    )()


async def test_copies_of_other_jobs_are_not_believed(authority: Authority) -> None:
    async with serving(authority.issue("server").tls(), leads=True) as served:
        access = authority.of("agent", "n1", jobs=("mine",)).access()
        leader_term = served.front.leader_term
        assert leader_term is not None
        async with access.channel(served.address, OPTIONS) as channel:
            call = link(channel)
            await call.write(hello(OTHERS, MINE))
            answer = await call.read()
            assert answer.WhichOneof("body") == "welcome", "its own word is heard"
            node = leader_term.core.state.nodes["n1"]
            assert node.copies == (MINE,), "in a hello"
            assert served.dropped("denied") == 1
            await call.write(beat(1, MINE, OTHERS, OTHERS))
            await until(lambda: node.seq == 1)
            assert node.copies == (MINE,), "in a beat"
            assert served.dropped("denied") == 2
            call.cancel()


async def test_an_agent_of_all_jobs_tells_of_all_copies() -> None:
    async with serving(leads=True) as served:
        assert served.front.leader_term is not None
        async with plain().channel(served.address, OPTIONS) as channel:
            call = link(channel)
            await call.write(hello(OTHERS, MINE))
            await call.read()
            assert served.front.leader_term.core.state.nodes["n1"].copies == (OTHERS, MINE)
            call.cancel()
