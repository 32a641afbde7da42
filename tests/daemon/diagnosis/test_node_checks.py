"""The shell of node checks: orders go to agents that know them, and readings come back judged."""

from __future__ import annotations

from typing import Any

from controlplane.core.records.effects import CheckNode
from controlplane.core.records.node_checks import JudgeNode, NodeChecked, NodeJudged, PeerReadings
from controlplane.daemon.diagnosis.node_checks import OLDER, NodeChecking
from controlplane.daemon.server.links import AgentLink, Links
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.wire import codec
from holdfast.node_check.reading import NodeReading
from tests.agent.support import until
from tests.core.test_cluster import running

ORDER = CheckNode("a", 7, 0.25, 90.0)


def stage(takes: frozenset[str]) -> tuple[NodeChecking, AgentLink, list[Any]]:
    """What checks a node whose agent's hello names these new orders."""
    links, link, posted = Links(Metrics("test")), AgentLink("a", 1, takes), list[Any]()
    links.expect(link)
    links.admit("a", 1, codec.welcome("test", 1.0, 3))
    return NodeChecking(running().cluster, links, 3, posted.append), link, posted


async def test_an_order_goes_to_an_agent_that_knows_it() -> None:
    checking, link, posted = stage(frozenset({"check_node"}))
    checking.order(ORDER)
    messages = [link.orders.get_nowait() for _ in range(2)]
    assert messages[1] is not None and codec.order_from(messages[1], "a") == ORDER
    assert posted == []


async def test_an_older_agent_is_no_reason_to_wait() -> None:
    checking, link, posted = stage(frozenset())
    checking.order(ORDER)
    assert posted == [NodeChecked("a", 1, 7, reason=OLDER)] and link.orders.qsize() == 1


async def test_readings_come_back_judged() -> None:
    checking, _, posted = stage(frozenset())
    slow, fast = (NodeReading("cpu.gemm.float32", value, "flop/s") for value in (50.0, 100.0))
    peers = tuple(PeerReadings(name, (fast,)) for name in "bcd")
    checking.judge(JudgeNode("a", 7, (slow,), 0.0, peers))
    await until(lambda: posted, "the judgement")
    (judged,) = posted
    assert isinstance(judged, NodeJudged) and (judged.node, judged.round) == ("a", 7)
    (bad,) = judged.bad
    assert (bad.part, bad.kind, bad.confidence) == ("cpu.gemm.float32", "node_part_slow", 0.9)
    assert judged.fine == () and judged.sound == ("cpu.gemm.float32",)
    await checking.close()
