"""A real agent measures its node by processes of its launcher, and gives way to ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.daemon.node_checks import PREFIX
from agent.links import checking
from agent.peers.server import AT_WORK
from controlplane.access.client_credentials import plain
from controlplane.analysis import node_checks
from controlplane.core.records.effects import CheckNode
from controlplane.core.records.model import PeerAddress
from controlplane.core.records.node_checks import JudgeNode, NodeChecked
from tests.agent.peering import Side
from tests.agent.support import AgentProcess, Leader, launch, spec, until

if TYPE_CHECKING:
    from pathlib import Path

READINGS = {
    *(f"cpu.gemm.{kind}" for kind in ("float32", "bfloat16", "float16")),
    *("memory.copy", "disk.write", "disk.read", "disk.sync"),
}
LONG_S = 30.0


async def test_a_node_is_measured_once_and_its_answer_serves_again(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            greeting = await leader.hello(1)
            assert "check_node" in greeting.takes
            order = CheckNode("n0", 5, 0.01, 300.0)
            await leader.order(order)
            await leader.order(order)  # repeated while it is carried out
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            (answer,) = leader.of(NodeChecked)
            assert answer.round == 5 and answer.reason == ""
            measured = {each.name for each in answer.readings if each.value and each.value > 0}
            assert measured >= READINGS, answer
            assert not any(each.broken for each in answer.readings)

            await leader.order(order)
            await leader.order(CheckNode("n0", 6, 0.01, 300.0, fresh_s=3600.0))
            await until(lambda: len(leader.of(NodeChecked)) == 3, "two more answers")
            again, fresh = leader.of(NodeChecked)[1:]
            assert again == answer
            assert (fresh.round, fresh.readings) == (6, answer.readings) and fresh.age_s > 0
        finally:
            await agent.end()


async def test_clock_and_links_are_measured_last(base: Path) -> None:
    async with Leader() as leader, Side(base, "b") as far, Side(base, "c") as gone:
        leader.clock_slow_s = 90.0
        peers = tuple(PeerAddress(each.name, each.peers.address) for each in (far, gone))
        await gone.peers.stop()
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            await leader.hello(1)
            await leader.order(CheckNode("n0", 5, 0.01, 300.0, peers=peers))
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            (answer,) = leader.of(NodeChecked)
            offset, bandwidth = answer.readings[-2:]
            assert (offset.name, bandwidth.name) == ("clock.offset", "link.bandwidth")
            assert offset.value is not None and abs(offset.value - 90.0) <= offset.within, offset
            assert bandwidth.value and far.peers.counts["peer_probed_bytes"] > 0, bandwidth
            bad = node_checks.answer(JudgeNode("n0", 5, answer.readings, answer.load)).bad
            assert [each.part for each in bad] == ["clock.offset"]
            assert "90 s ahead of that of the coordinator" in bad[0].reason and bad[0].confidence == 0.5
        finally:
            await agent.end()


async def test_an_agent_beside_a_rank_is_sent_no_burst(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            peer = PeerAddress("n0", (await leader.hello(1)).joined.peer)
            order = CheckNode("n0", 1, LONG_S, 300.0)
            await leader.order(order)
            await until((agent.run_dir / "logs" / f"{PREFIX}cpu.log").exists, "a part that is measured")
            offset, bandwidth = await checking.peer_readings(peer, plain())
            assert offset.value is not None and bandwidth.reason == AT_WORK
            script = base / "rank.py"
            script.write_text("import time\ntime.sleep(600)\n")
            await leader.order(launch("job.0", spec(script)))
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            offset, bandwidth = await checking.peer_readings(peer, plain())
            assert offset.value is not None and bandwidth.reason == "a rank lives there"
        finally:
            await agent.end()


async def test_ranks_come_first(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            await leader.hello(1)
            await leader.order(CheckNode("n0", 1, LONG_S, 300.0))
            output = agent.run_dir / "logs" / f"{PREFIX}cpu.log"
            await until(output.exists, "a part that is measured")
            script = base / "rank.py"
            script.write_text("import time\ntime.sleep(600)\n")
            await leader.order(launch("job.0", spec(script)))
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            await leader.order(CheckNode("n0", 2, 0.01, 300.0))
            await until(lambda: len(leader.of(NodeChecked)) == 2, "the answer beside a rank")
            ended, beside = leader.of(NodeChecked)
            assert ended.reason == "job.0 was launched here meanwhile" and ended.readings == ()
            assert beside.reason == "job.0 lives here: nothing is measured beside a rank"
        finally:
            await agent.end()


async def test_the_next_agent_kills_what_was_being_measured_and_measures_anew(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            await leader.hello(1)
            await leader.order(CheckNode("n0", 1, LONG_S, 300.0))
            await until((agent.run_dir / "logs" / f"{PREFIX}cpu.log").exists, "a part that is measured")
            agent.kill()
            agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
            greeting = await leader.hello(2)
            assert greeting.joined.members == ()
            await leader.order(CheckNode("n0", 1, 0.01, 300.0))
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            (answer,) = leader.of(NodeChecked)
            assert answer.reason == "" and len(answer.readings) >= len(READINGS)
        finally:
            await agent.end()


async def test_a_check_that_has_no_time_says_so_and_blames_nothing(base: Path) -> None:
    async with Leader() as leader:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        try:
            await leader.hello(1)
            await leader.order(CheckNode("n0", 1, LONG_S, 0.2))
            await until(lambda: leader.of(NodeChecked), "the answer to a check")
            (answer,) = leader.of(NodeChecked)
            assert answer.reason or not any(each.broken for each in answer.readings)
        finally:
            await agent.end()
