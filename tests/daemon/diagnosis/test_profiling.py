"""The leader asks only ranks of the newest generation, all or none, and answers for those that are lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from controlplane.core.records.diagnosis import ProfileRank, RankProfiled
from controlplane.core.records.events import PauseRequested
from controlplane.daemon.diagnosis.profiling import (
    LATE_S,
    TRACE_BYTES_MAX,
    ProfileRefused,
    ProfileRequests,
    TermEnded,
    WantedProfile,
)
from controlplane.daemon.server.links import AgentLink, Links
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.core.test_cluster import running

WELCOME = codec.welcome("c", 1.0, 7)


class Stage:
    """A leader with a running job of two ranks on nodes a and b, and the streams of their agents."""

    def __init__(self, takes: frozenset[str] = frozenset({"profile"})) -> None:
        self.play = running("submit nodes=2 nproc=1")
        self.links, self.agents = Links(Metrics("test")), dict[str, AgentLink]()
        for node in ("a", "b"):
            self.agents[node] = AgentLink(node, 1, takes)
            self.links.expect(self.agents[node])
            self.links.admit(node, 1, WELCOME)
            self.agents[node].orders.get_nowait()
        self.now_s = 0.0
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.judged: list[tuple[int, str]] = []
        self.requests = ProfileRequests(
            self.play.cluster,
            self.links,
            7,
            lambda kind, body: self.written.append((kind, body)),
            clock=lambda: self.now_s,
            judge=lambda rank, answer: self.judged.append((rank, answer.reason)),
        )

    def begin(self, *ranks: int) -> WantedProfile:
        return self.requests.begin("j", ranks, 5, 60.0, "a talk")

    def ordered(self, node: str) -> ProfileRank | None:
        """The order that waits for this node."""
        if self.agents[node].orders.empty():
            return None
        message = self.agents[node].orders.get_nowait()
        assert isinstance(message, pb.CoordinatorMessage)
        order = codec.order_from(message, node)
        assert isinstance(order, ProfileRank)
        return order

    def answer(self, order: ProfileRank, reason: str = "", node: str = "") -> None:
        names = order.job, order.member, order.request
        self.requests.take(RankProfiled(node or order.node, 1, *names, order.generation, reason, "/x", 9))

    async def answers(self, wanted: WantedProfile) -> dict[int, str]:
        return {rank: found.reason async for _, rank, found in self.requests.answers(wanted)}


async def test_each_rank_is_asked_at_its_node_and_answers_come_back() -> None:
    stage = Stage()
    wanted = stage.begin(1, 0, 1)
    orders = [stage.ordered("a"), stage.ordered("b")]
    assert stage.ordered("a") is None
    for order in orders:
        assert order is not None
        assert (order.steps, order.timeout_s, order.bytes_max) == (5, 60.0, TRACE_BYTES_MAX)
        stage.answer(order, node="elsewhere")  # of a node that was not asked
        stage.answer(order, "no" if order.node == "b" else "")
        stage.answer(order, "twice")
    assert await stage.answers(wanted) == {0: "", 1: "no"}
    kinds = [kind for kind, _ in stage.written]
    assert kinds == ["ProfileAsked", "Profiled", "Profiled"]
    assert stage.written[0][1]["ranks"] == "0,1" and stage.written[0][1]["reason"] == "a talk"
    assert orders[0] is not None
    stage.answer(orders[0], "after the end")
    assert len(stage.written) == 3 and stage.judged == [(0, "")]


@pytest.mark.parametrize(
    ("ranks", "reason"), [((0, 2), "there is no rank 2: it has the ranks 0 to 1"), ((0, 99), "no rank 99")]
)
async def test_one_wrong_rank_and_nobody_is_asked(ranks: tuple[int, ...], reason: str) -> None:
    stage = Stage()
    with pytest.raises(ProfileRefused, match=reason):
        stage.begin(*ranks)
    assert stage.ordered("a") is None and stage.written == []


async def test_a_paused_job_is_refused() -> None:
    stage = Stage()
    stage.play.feed(PauseRequested("j", True, "a talk"))
    with pytest.raises(ProfileRefused, match="only a running job can be profiled"):
        stage.begin(0)


async def test_an_older_agent_and_one_that_is_away_are_refused_by_name() -> None:
    with pytest.raises(ProfileRefused, match="node a is of an older version"):
        Stage(frozenset()).begin(0)
    stage = Stage()
    stage.links.forget(stage.agents["a"])
    with pytest.raises(ProfileRefused, match="node a is not connected"):
        stage.begin(0)


async def test_an_agent_that_never_answers_is_answered_for() -> None:
    stage = Stage()
    wanted = stage.begin(0)
    stage.now_s = 60.0 + LATE_S + 1
    assert await stage.answers(wanted) == {0: "its agent has not answered in time"}


async def test_the_end_of_the_term_ends_it() -> None:
    stage = Stage()
    wanted = stage.begin(0)
    stage.requests.close()
    with pytest.raises(TermEnded, match="ask the next leader again"):
        await stage.answers(wanted)


async def test_a_caller_who_leaves_is_forgotten() -> None:
    stage = Stage()
    wanted = stage.begin(0)
    waiting = asyncio.ensure_future(stage.answers(wanted))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    order = stage.ordered("a")
    assert order is not None
    stage.answer(order)
    assert [kind for kind, _ in stage.written] == ["ProfileAsked"]
