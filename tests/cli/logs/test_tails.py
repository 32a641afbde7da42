"""Of a node that is lost, the coordinator has the end of what each rank wrote; and says what is gone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records.events import Elected
from controlplane.core.records.logs import LogFile, LogMark, ReadLog
from controlplane.core.records.model import JobState, NodePlace
from controlplane.daemon.server.log_tails import TAIL_BYTES, TOTAL_BYTES, LogTail, LogTails
from tests.cli.logs.stage import JOB, LoggingHand, LogStage, log_stage
from tests.daemon.rig import until
from tests.security.serving import leading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from controlplane.daemon.leadership.leader_term import LeaderTerm

Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def stage() -> AsyncIterator[LogStage]:
    async with log_stage() as found:
        yield found


def term_of(stage: LogStage) -> LeaderTerm:
    found = stage.served.front.leader_term
    assert found is not None
    return found


async def lost(stage: LogStage, hand: LoggingHand) -> None:
    """The node is gone with all that it had."""
    await hand.close()
    term = term_of(stage)
    await until(lambda: not term.links.connected(hand.node))
    term.core.state.nodes[hand.node].state = "lost"


async def test_the_end_of_a_lost_log_is_shown_and_the_rest_is_named(
    stage: LogStage, capsys: Captured
) -> None:
    stage.log(0, b"zero\n")
    lines = [b"line %06d\n" % number for number in range(20_000)]
    stage.log(1, b"".join(lines))
    tails, hand = term_of(stage).tails, stage.holder(1)
    await tails.look()
    stage.log(1, b"after that\n")
    await lost(stage, hand)
    assert await stage.logs(JOB, "--rank", "1") == 1
    shown = capsys.readouterr()
    text = b"".join(lines).decode()
    assert shown.out == text[-TAIL_BYTES:] and len(text) > 2 * TAIL_BYTES
    assert f"node {hand.node} is lost; it was heard last" in shown.err
    assert "the coordinator has the last 64.0 KiB of each rank at most, read " in shown.err
    assert "of its beginning are not kept any more" in shown.err
    assert await stage.logs(JOB, "--rank", "1", "--tail", "2") == 1
    assert capsys.readouterr().out == "line 019998\nline 019999\n"
    assert await stage.logs(JOB) == 1, "one of the two is not whole"
    assert "zero" in capsys.readouterr().out


async def test_only_what_is_new_is_read_and_it_joins_what_was_there(
    stage: LogStage, capsys: Captured
) -> None:
    tails, hand = term_of(stage).tails, stage.holder(1)
    written = b""
    for number in range(4):
        part = b"%d" % number * 30_000 + b"\n"
        written += part
        member = stage.log(1, part)
        await tails.look()
        tail = tails._kept[JOB, hand.node][member]
        assert tail.data == written[-TAIL_BYTES:] and tail.file.bytes == len(written)
    orders: list[ReadLog] = []
    hand._obey[ReadLog] = _noting(hand, orders)
    await tails.look()
    assert [order.member for order in orders] == [""], "nothing is new, so no log is read"
    stage.log(1, b"more\n")
    await tails.look()
    assert [(each.from_bytes, each.end_bytes) for each in orders if each.member] == [
        (len(written), len(written) + 5)
    ]
    hand.write(member, b"x" * (3 << 20))
    hand.logs.limit()  # the agent keeps 1 MiB of it
    await tails.look()
    assert tails._kept[JOB, hand.node][member].data == b"x" * TAIL_BYTES


def _noting(hand: LoggingHand, orders: list[ReadLog]) -> Callable[[ReadLog], Awaitable[None]]:
    async def obey(order: ReadLog) -> None:
        orders.append(order)
        await hand._send_log(order)

    return obey


async def test_an_agent_that_is_there_is_asked_itself(stage: LogStage, capsys: Captured) -> None:
    stage.log(1, b"early\n")
    await term_of(stage).tails.look()
    stage.log(1, b"late\n")
    assert await stage.logs(JOB, "--rank", "1") == 0
    assert capsys.readouterr() == ("early\nlate\n", "")


async def test_what_is_kept_is_bounded_and_goes_with_its_job(stage: LogStage) -> None:
    term = term_of(stage)
    stage.log(1, b"one\n")
    file = LogFile("j.9", TOTAL_BYTES // 2, 0, False, (LogMark(0, 1.0, 7, 1),))
    for node, at_s in (("old", 1.0), ("older", 0.5), ("new", 2.0)):
        term.tails._kept[JOB, node] = {"j.9": LogTail(file, b"x" * (TOTAL_BYTES // 2 - 8), at_s)}
    term.tails._kept["gone", "n7"] = {}
    await term.tails.look()
    assert set(term.tails._kept) == {(JOB, "n0"), (JOB, "n1"), (JOB, "new"), (JOB, "old")}
    assert sum(len(tail.data) for kept in term.tails._kept.values() for tail in kept.values()) <= TOTAL_BYTES


async def test_nodes_are_asked_again_and_again_and_a_deaf_one_holds_up_nobody(stage: LogStage) -> None:
    term, deaf, heard = term_of(stage), stage.holder(0), stage.holder(1)
    stage.log(0, b"zero\n")
    member = stage.log(1, b"one\n")
    deaf.deaf = True
    tails = LogTails(term.core, term.links, term.logs, 0.05)
    running = asyncio.create_task(tails.run())
    await until(lambda: member in tails._kept.get((JOB, heard.node), {}))
    assert (JOB, deaf.node) not in tails._kept
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await until(lambda: not stage.relays())


async def test_after_a_change_of_leader_it_is_said_that_the_ends_are_gone(
    stage: LogStage, capsys: Captured
) -> None:
    stage.log(1, b"one\n")
    before, hand = term_of(stage), stage.holder(1)
    await before.tails.look()
    await lost(stage, hand)
    assert await stage.logs(JOB, "--rank", "1") == 1
    shown = capsys.readouterr()
    assert shown.out == "one\n" and "the leader changed" not in shown.err
    job = before.core.state.jobs[JOB]
    assert job.generation is not None
    elected = Elected(
        before.term + 1,
        specs=(job.spec,),
        states=(JobState(JOB, job.phase, ""),),
        generations=(job.generation,),
        places=(NodePlace(hand.node, "lost"),),
    )
    async with leading(stage.served.front, elected) as term:
        await until(lambda: JOB in term.core.state.jobs)
        assert await stage.logs(JOB, "--rank", "1") == 1
        shown = capsys.readouterr()
        assert shown.out == "" and f"node {hand.node}" in shown.err
        assert "the leader changed" in shown.err and "has read nothing of node" in shown.err
        assert await stage.logs(JOB, "--rank", "1", "--previous") == 1
        assert "the leader changed" in capsys.readouterr().err
        assert term.tails.missing("another", hand.node) == "", "a job of this leader's own time"
