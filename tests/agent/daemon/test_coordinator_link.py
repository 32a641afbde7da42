"""The link to the leader: nothing said once is lost while leaders come and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from agent.daemon.coordinator_link import CoordinatorLink, Peer
from agent.deciding.outbox import RESEND_S
from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase, MemberStatus
from controlplane.wire import codec
from tests.agent.support import Leader, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STATUS = MemberStatus("job.1", "job", MemberPhase.RUNNING)


class Node:
    def __init__(self, *coordinators: str) -> None:
        self.ahead_s = 0.0  # of its clock
        self.orders: list[codec.Order] = []
        self.dropped: list[tuple[str, str]] = []
        self.absent: list[str] = []
        self.asked: list[events.CheckpointAsked] = []
        peer = Peer(
            cluster="test",
            node="n0",
            incarnation=5,
            joined=lambda: events.NodeJoined("n0", 5, "launcher", "127.0.0.1", 2, 7000, (STATUS,)),
            statuses=lambda: (STATUS,),
            copies=tuple,
            port=lambda: 7000,
            order=self.orders.append,
            drop=lambda kind, reason: self.dropped.append((kind, reason)),
            absent=self.absent.append,
            open=lambda: self.asked,
        )
        self.link = CoordinatorLink(coordinators, 0.2, peer, clock=lambda: time.monotonic() + self.ahead_s)


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(node.link.run())
    try:
        yield
        assert not task.done(), "the link gave up"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ready(step: int) -> events.SnapshotReady:
    return events.SnapshotReady("n0", 5, "job.1", "job", 1, step)


def steps(leader: Leader) -> set[int]:
    return {event.step for event in leader.of(events.SnapshotReady)}


async def test_what_is_said_once_arrives_though_the_leader_is_away() -> None:
    async with Leader() as leader:
        node = Node("127.0.0.1:1", f"127.0.0.1:{leader.port}")
        node.link.send_event(ready(1))
        async with running(node):
            await until(lambda: steps(leader) == {1}, "what was said before there was a stream")
            leader.leave()
            node.link.send_event(ready(2))
            await until(lambda: not node.link.up, "the break")
            node.link.send_event(ready(3))
            reports = len(leader.reports("job.1"))
            node.link.send_event(events.MemberReport("n0", 1, 0, STATUS))
            leader.lead(2)
            await until(lambda: {2, 3} <= steps(leader), "what was said meanwhile")
            hello = await leader.hello(2)
            assert hello.term_seen == 1
            assert hello.joined.members == (STATUS,)
            beats = len(leader.of(events.NodeBeat))
            await until(lambda: len(leader.of(events.NodeBeat)) > beats + 2, "beats")
            numbers = [beat.seq for beat in leader.of(events.NodeBeat)]
            assert numbers == sorted(set(numbers))
            assert len(leader.reports("job.1")) == reports


async def test_what_no_leader_has_answered_is_asked_of_the_next_one() -> None:
    async with Leader() as leader:
        node = Node(f"127.0.0.1:{leader.port}")
        asked = [events.CheckpointAsked("n0", 5, "job", "job.1", 1, step, f"r{step}") for step in (7, 9)]
        node.asked.append(asked[0])
        async with running(node):
            await until(lambda: leader.of(events.CheckpointAsked) == asked[:1], "the asking")
            leader.leave()
            await until(lambda: not node.link.up, "the break")
            node.asked.append(asked[1])
            node.link.send_event(asked[1])
            leader.lead(2)
            await until(lambda: len(leader.of(events.CheckpointAsked)) >= 3, "both askings again")
            assert sorted(event.step for event in leader.of(events.CheckpointAsked)) == [7, 7, 9]


async def test_who_does_not_lead_and_who_is_not_there_are_told_of(unused_tcp_port: int) -> None:
    async with Leader() as standby:
        standby.refusal = codec.refused("a standby", retry=True)
        both = [f"127.0.0.1:{port}" for port in (standby.port, unused_tcp_port)]
        node = Node(*both)
        async with running(node):
            await until(lambda: set(node.absent) == set(both), "both")


async def test_two_that_name_each_other_as_the_leader_are_asked_with_pauses() -> None:
    async with Leader() as one, Leader() as other:
        one.refusal = codec.refused("a standby", retry=True, leader=f"127.0.0.1:{other.port}")
        other.refusal = codec.refused("a standby", retry=True, leader=f"127.0.0.1:{one.port}")
        node = Node(f"127.0.0.1:{one.port}")
        async with running(node):
            await until(lambda: len(one.hellos) > 1, "a second attempt")
            await asyncio.sleep(1.0)
        assert len(one.hellos) + len(other.hellos) < 30


async def test_an_old_leader_is_not_obeyed() -> None:
    async with Leader(term=3) as old, Leader(term=9) as new:
        node = Node(f"127.0.0.1:{new.port}", f"127.0.0.1:{old.port}")
        async with running(node):
            await new.hello(1)
            await new.order(effects.Release("n0", "job", 1))
            await until(lambda: node.orders, "the order")
            await new.order(effects.Release("n0", "job", 2), term=4)
            await until(lambda: node.dropped, "the drop")
            new.leave()
            await until(lambda: len(old.hellos) > 1, "a second attempt: its welcome was of an old term")
            assert not node.link.up
            assert node.link.term == 9
        assert [order.step for order in node.orders if isinstance(order, effects.Release)] == [1]


async def test_what_a_leader_never_took_is_told_to_the_next_one_however_late() -> None:
    async with Leader() as leader:
        leader.deaf = True
        node = Node(f"127.0.0.1:{leader.port}")
        async with running(node):
            await until(lambda: node.link.up, "a stream")
            for step in range(2000):  # more than the stream itself takes from us
                node.link.send_event(ready(step))
            node.ahead_s = 2.0 * RESEND_S
            leader.deaf = False
            leader.leave()
            await until(lambda: not node.link.up, "the break")
            leader.lead(2)
            await until(lambda: {1998, 1999} <= steps(leader), "what was never taken")
            found = [event.step for event in leader.of(events.SnapshotReady)]
            assert found == sorted(set(found)), "in order, and once"
