"""The peer service as a part of a real agent: told of in hello and beats, ordered over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects, events
from controlplane.core.records.model import PeerCopy
from tests.agent.peering import JOB, Side, read, values
from tests.agent.support import AgentProcess, Leader, until

if TYPE_CHECKING:
    from pathlib import Path

MEMBER, REPLACEMENT = "job.1", "job.7"


async def test_an_agent_keeps_tells_and_fetches_copies(base: Path) -> None:
    async with Leader() as leader, Side(base, "a") as owner:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}", address="127.0.0.1", domain="rack1")
        try:
            joined = (await leader.hello(1)).joined
            assert joined.domain == "rack1" and joined.peer.startswith("127.0.0.1:") and joined.copies == ()
            owner.replicate((MEMBER, joined.peer))
            owner.snapshot(MEMBER, values(1), 10)
            await until(lambda: any(beat.copies for beat in leader.of(events.NodeBeat)), "a beat of it")
            copy = PeerCopy(MEMBER, JOB, 0, "all", 10, 1, owner.vouched(MEMBER, 10))
            assert leader.of(events.NodeBeat)[-1].copies == (copy,)

            agent.kill()
            agent = AgentProcess(base, f"127.0.0.1:{leader.port}", address="127.0.0.1")
            joined = (await leader.hello(2)).joined
            assert joined.copies == (copy,)

            await leader.order(effects.Fetch("n0", REPLACEMENT, JOB, MEMBER, 10, 1, joined.peer))
            await until(lambda: leader.of(events.Fetched), "the answer to a fetch")
            (answer,) = leader.of(events.Fetched)
            assert (answer.member, answer.source, answer.step, answer.reason) == (REPLACEMENT, MEMBER, 10, "")
            assert read(agent.memory / f"{REPLACEMENT}.arena", 10) == read(owner.paths.arena(MEMBER), 10)

            await leader.order(effects.Complete("n0", JOB, True, "done"))
            await until(lambda: not any((agent.memory / "copies").iterdir()), "the end of the copies")
            await until(lambda: leader.of(events.NodeBeat)[-1].copies == (), "a beat without them")
        finally:
            await agent.end()
        assert not agent.memory.exists()


async def test_an_address_that_cannot_be_listened_on_is_named(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}", peer_listen="192.0.2.1:0", insecure=True)
        await until(lambda: agent.process.poll() is not None, "the agent's end")
        assert "cannot listen on --peer-listen 192.0.2.1:0" in agent.err()
        assert not agent.memory.exists()
