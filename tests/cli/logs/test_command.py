"""`holdfast logs` against a leader, with logs that agents' own code keeps and sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from controlplane.cli.errors import CliError, UsageError
from controlplane.cli.logs import command
from controlplane.cli.main import tree
from controlplane.core.records.logs import ReadLog
from controlplane.core.records.model import MemberPhase
from controlplane.daemon.server.log_relay import BLOCKS_MAX
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.cli.logs.stage import JOB, LogStage, log_stage, trains
from tests.daemon.rig import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def stage() -> AsyncIterator[LogStage]:
    async with log_stage() as made:
        yield made


async def test_all_ranks_and_one(stage: LogStage, capsys: Captured) -> None:
    stage.log(0, b"zero\n")
    stage.log(1, b"one\nand more")
    assert await stage.logs(JOB) == 0
    shown = capsys.readouterr()
    places = {rank: stage.holder(rank).node for rank in (0, 1)}
    assert shown.out.splitlines() == [
        f"[{places[0]} 0] zero", f"[{places[1]} 1] one", f"[{places[1]} 1] and more",
    ]  # fmt: skip
    assert shown.err == ""
    assert await stage.logs(JOB, "--rank", "1", "--tail", "1") == 0
    assert capsys.readouterr().out == "and more\n"
    assert await stage.logs(JOB, "--rank", "0", "--prefix") == 0
    assert capsys.readouterr().out == f"[{places[0]} 0] zero\n"
    assert not stage.relays()


async def test_what_does_not_exist_is_named(stage: LogStage, capsys: Captured) -> None:
    with pytest.raises(CliError, match="no job named http://host/jobs/j"):
        await stage.logs("http://host/jobs/j")
    with pytest.raises(CliError, match="no rank 7: it has the ranks 0 to 1"):
        await stage.logs(JOB, "--rank", "7")
    for words in (["--rank", "x"], ["--tail", "-1"], ["--since", "yesterday"], ["-p", "--generation", "1"]):
        with pytest.raises(UsageError):
            command.logs(tree().parse_args(["logs", JOB, *words]))
    stage.log(0, b"zero\n")
    assert await stage.logs(JOB, "--rank", "0", "-p") == 1
    assert "rank 0: no log of an earlier process is found" in capsys.readouterr().err
    assert await stage.logs(JOB, "--rank", "0", "--generation", "9") == 1
    assert "there are logs of generations: 1" in capsys.readouterr().err


async def test_a_rank_is_followed_through_the_end_of_its_process(stage: LogStage, capsys: Captured) -> None:
    first = stage.log(1, b"before\n")
    hand = stage.holder(1)
    following = asyncio.create_task(stage.logs(JOB, "--rank", "1", "-f"))
    found: list[str] = []

    def says(words: str) -> bool:
        found.append(capsys.readouterr().out)
        return words in "".join(found)

    await until(lambda: says("before"))
    stage.log(1, b"last words\n")
    await hand.die(first)
    await until(lambda: says("last words"))
    await until(lambda: trains(stage) and stage.holder(1).member(1) != first)
    stage.log(1, b"after\n")
    await until(lambda: says("after"))
    assert "".join(found).splitlines() == ["before", "last words", "after"], "each line once"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert await stage.logs(JOB, "--rank", "1", "-p") == 0
    assert capsys.readouterr().out == "before\nlast words\n"
    await until(lambda: not stage.relays())


async def test_a_log_that_breaks_off_goes_on_where_it_was(stage: LogStage, capsys: Captured) -> None:
    stage.log(1, b"before\n")
    hand = stage.holder(1)
    following = asyncio.create_task(stage.logs(JOB, "--rank", "1", "-f"))
    found = [capsys.readouterr(), capsys.readouterr()]

    def says(words: str) -> bool:
        found.append(capsys.readouterr())
        return words in "".join(each.out + each.err for each in found)

    await until(lambda: says("before"))
    await hand.sender.close()  # as when the agent is killed
    await until(lambda: says("broke off"))
    stage.log(1, b"meanwhile\n")
    await until(lambda: says("meanwhile"))
    assert "".join(each.out for each in found) == "before\nmeanwhile\n", "each line once"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_a_process_wrote_before_its_end_is_shown_though_its_log_broke_off(
    stage: LogStage, capsys: Captured
) -> None:
    """The agent is away while the rank writes its last words; when it is back, the rank has a successor."""
    first, hand = stage.log(1, b"before\n"), stage.holder(1)
    following = asyncio.create_task(stage.logs(JOB, "--rank", "1", "-f"))
    found = [capsys.readouterr()]

    def says(words: str) -> bool:
        found.append(capsys.readouterr())
        return words in "".join(each.out + each.err for each in found)

    await until(lambda: says("before"))
    hand.deaf_to = first
    await hand.sender.close()
    await until(lambda: says("broke off"))
    stage.log(1, b"last words\n")
    await hand.die(first)
    await until(lambda: trains(stage) and stage.holder(1).member(1) != first)
    stage.log(1, b"after\n")
    await until(lambda: hand.ignored)  # it is told after a while that the agent does not answer
    hand.deaf_to = ""
    await until(lambda: says("after"))
    assert "".join(each.out for each in found) == "before\nlast words\nafter\n"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_slow_reader_slows_the_agent_and_fills_no_memory(stage: LogStage) -> None:
    """8 MiB are asked for and not read: what waits is bounded. Then all of it comes, in order."""
    member, hand = stage.log(0, b""), stage.holder(0)
    hand.logs._bytes_max = 0
    data = b"".join(b"%015d\n" % number for number in range(1 << 19))
    hand.write(member, data)
    async with grpc.aio.insecure_channel(stage.served.address) as channel:
        request = pb.ReadLogRequest(job=JOB, node=hand.node, member=member, end_bytes=-1, tail=-1)
        call = AdminStub(channel).ReadLog(request)  # type: ignore[no-untyped-call]
        first = await call.read()
        (relay,) = stage.relays()
        await until(relay.blocks.full)
        await asyncio.sleep(0.3)  # were it not held back, it would go on
        assert relay.blocks.qsize() == BLOCKS_MAX
        got = bytearray(first.data)
        while (block := await call.read()) is not grpc.aio.EOF:
            assert block.from_bytes == len(got)
            got += block.data
    assert bytes(got) == data
    await until(lambda: not stage.relays())


async def test_a_reader_that_leaves_ends_the_stream_of_the_agent(stage: LogStage) -> None:
    member, hand = stage.log(0, b"x\n"), stage.holder(0)
    async with grpc.aio.insecure_channel(stage.served.address) as channel:
        request = pb.ReadLogRequest(
            job=JOB, node=hand.node, member=member, end_bytes=-1, tail=-1, follow=True
        )
        call = AdminStub(channel).ReadLog(request)  # type: ignore[no-untyped-call]
        await call.read()
        assert hand.sender._reading == 1
        call.cancel()
    await until(lambda: not stage.relays() and hand.sender._reading == 0)


async def test_what_is_cut_is_said(stage: LogStage, capsys: Captured) -> None:
    member, hand = stage.log(0, b"first line\n"), stage.holder(0)
    hand.write(member, b"".join(b"line %d\n" % number for number in range(400_000)))
    hand.logs.limit()
    assert await stage.logs(JOB, "--rank", "0") == 0
    shown = capsys.readouterr()
    assert "of its beginning are not kept any more" in shown.err and "first line" not in shown.out
    assert shown.out.endswith("line 399999\n")
    assert await stage.logs(JOB, "--rank", "0", "--tail", "2") == 0
    assert capsys.readouterr() == ("line 399998\nline 399999\n", "")


async def test_binary_is_shown_as_text(stage: LogStage, capsys: Captured) -> None:
    stage.log(0, bytes(range(256)) * 500)
    assert await stage.logs(JOB, "--rank", "0") == 0
    assert "\\xff" in capsys.readouterr().out


async def test_a_node_that_is_away_is_named(stage: LogStage, capsys: Captured) -> None:
    stage.log(0, b"zero\n")
    stage.log(1, b"one\n")
    hand = stage.holder(1)
    await hand.close()
    term = stage.served.front.leader_term
    assert term is not None
    await until(lambda: term.links.obstacle(hand.node, ReadLog(hand.node, JOB, "1")))
    assert await stage.logs(JOB, "--rank", "0,1") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].endswith("zero")
    assert f"the agent of node {hand.node} is not connected now" in shown.err


async def test_what_is_gone_with_a_lost_node_is_named(stage: LogStage, capsys: Captured) -> None:
    """Nobody has asked for that rank by its number: it is missing all the same."""
    stage.log(0, b"zero\n")
    hand, term = stage.holder(1), stage.served.front.leader_term
    assert term is not None
    await hand.close()
    await until(lambda: term.links.obstacle(hand.node, ReadLog(hand.node, JOB, "1")))
    for words in ((), ("--previous",), ("--generation", "1")):
        term.core.state.nodes[hand.node].state = "lost"
        assert await stage.logs(JOB, *words) == 1, words
        shown = capsys.readouterr()
        lines = [line for line in shown.err.splitlines() if line.startswith("holdfast logs: rank 1: no log")]
        assert len(lines) == 1 and f"node {hand.node} is lost; it was heard last " in lines[0], shown.err
        assert lines[0].endswith("s ago: what its ranks had written is there only)")
        assert ("zero" in shown.out) is (words != ("--previous",))


async def test_a_stream_that_nobody_asked_for_is_refused(stage: LogStage) -> None:
    head = pb.LogPart(head=pb.LogHead(node="n0", job=JOB, request="1-999"))
    for part, code in (
        (head, grpc.StatusCode.NOT_FOUND),
        (pb.LogPart(block=pb.LogBlock(data=b"x")), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.LogPart(head=pb.LogHead(node="n0", job=JOB)), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        async with grpc.aio.insecure_channel(stage.served.address) as channel:
            call = channel.stream_unary(
                "/holdfast.control.v1.Control/SendLog", pb.LogPart.SerializeToString, pb.LogTaken.FromString
            )()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call.write(part)
                await call
            assert refused.value.code() is code
    assert trains(stage) and stage.holder(0).members[stage.holder(0).member(0)].phase is MemberPhase.RUNNING
