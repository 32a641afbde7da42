"""The stacks that people ask for: of whom, and by name why there are none; the core hears nothing of it."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.core.records.effects import CollectStacks
from controlplane.core.records.events import PauseRequested, StacksCollected
from controlplane.core.records.model import Standing
from controlplane.daemon.diagnosis.stack_requests import FIRST_ROUND, StackRequests, StacksRefused
from controlplane.daemon.server.links import AgentLink, Links
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.core.test_cluster import running
from tests.daemon.rig import until


class Stage:
    """A leader with a running job of two ranks on nodes a and b, and the streams of their agents."""

    def __init__(self, answer_s: float = 60.0) -> None:
        self.play = running("submit nodes=2 nproc=1")
        self.links, self.agents = Links(Metrics("test")), dict[str, AgentLink]()
        for node in ("a", "b"):
            self.agents[node] = AgentLink(node, 1)
            self.links.expect(self.agents[node])
            self.links.admit(node, 1, codec.welcome("c", 1.0, 7))
            self.agents[node].orders.get_nowait()
        self.requests = StackRequests(self.play.cluster, self.links, 7, answer_s)

    async def ordered(self, node: str) -> CollectStacks:
        """The order that a node gets."""
        orders = self.agents[node].orders
        await until(lambda: not orders.empty())
        message = orders.get_nowait()
        assert isinstance(message, pb.CoordinatorMessage)
        order = codec.order_from(message, node)
        assert isinstance(order, CollectStacks)
        return order

    def answer(self, order: CollectStacks, *ranks: int) -> bool:
        seats = self.play.cluster.state.jobs["j"].generation.seats  # type: ignore[union-attr]
        found = tuple(
            Standing(seat.member, seat.rank, 12, "backward", 3.0, False, stacks=f"stacks of {seat.rank}")
            for seat in seats
            if seat.rank in ranks
        )
        return self.requests.take(
            StacksCollected(order.node, 1, order.job, order.generation, order.round, found)
        )


async def test_every_rank_is_asked_and_its_stacks_are_given() -> None:
    stage = Stage()
    asking = asyncio.create_task(stage.requests.collect("j", ()))
    first, second = await stage.ordered("a"), await stage.ordered("b")
    assert first.round == second.round >= FIRST_ROUND and first.generation == 1
    assert stage.answer(first, 0) and stage.answer(second, 1)
    rows = await asking
    assert [(row.rank, row.node, row.reason) for row in rows] == [(0, "a", ""), (1, "b", "")]
    assert [row.report.stacks for row in rows if row.report] == ["stacks of 0", "stacks of 1"]
    assert stage.answer(first, 0), "a late answer is ours too: the core must not hear it"
    ours = CollectStacks("a", "j", 1, 3, 1000)
    assert not stage.answer(ours, 0), "an answer to the core goes to the core"


async def test_one_rank_alone_and_a_rank_that_does_not_train() -> None:
    stage = Stage()
    asking = asyncio.create_task(stage.requests.collect("j", (1,)))
    order = await stage.ordered("b")
    assert stage.agents["a"].orders.empty()
    stage.answer(order)
    (row,) = await asking
    assert row.rank == 1 and "it does not train now: its process is" in row.reason


async def test_a_node_that_is_silent_or_away_hides_no_other() -> None:
    stage = Stage(answer_s=0.2)
    asking = asyncio.create_task(stage.requests.collect("j", ()))
    stage.answer(await stage.ordered("a"), 0)
    rows = await asking
    assert rows[0].report is not None and "has not answered in time" in rows[1].reason
    stage.links.forget(stage.agents["b"])
    asking = asyncio.create_task(stage.requests.collect("j", ()))
    stage.answer(await stage.ordered("a"), 0)
    rows = await asking
    assert rows[0].report is not None and "agent of node b is not connected now" in rows[1].reason


async def test_what_cannot_be_asked_is_refused_by_name() -> None:
    stage = Stage()
    with pytest.raises(StacksRefused, match="no rank 5: it has the ranks 0 to 1"):
        await stage.requests.collect("j", (0, 5))
    stage.play.feed(PauseRequested("j", True, "lunch"))
    with pytest.raises(StacksRefused, match="only ranks of a running job"):
        await stage.requests.collect("j", ())
