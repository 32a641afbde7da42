"""What must not happen to copies: torn ones taken for whole, more than there is memory, names as paths."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from agent.peers import wire
from agent.peers.blocks import BLOCK_BYTES, SnapshotInfo, digest
from agent.peers.room import check_memory
from agent.peers.server import STREAMS_MAX
from controlplane.wire import peer_pb2 as pb
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.memory_left import available_bytes
from holdfast.ipc.shm import ArenaError
from tests.agent.peering import CHUNK, JOB, Process, Side, header, read, values
from tests.agent.support import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MEMBER = "job.1"
SLOW = 32 << 20  # bytes per s: a copy takes long enough to be killed in its midst


def writing(path: Path) -> bool:
    """Whether a slot of this arena is being written."""
    with Arena.open(path) as arena:
        return any(slot.state == SlotState.WRITING for slot in arena.slots)


async def test_a_partner_killed_in_the_midst_has_its_older_copy(base: Path) -> None:
    async with Side(base, "a", peer_bytes_per_s=SLOW) as owner:
        partner = Process(base, "b")
        try:
            owner.replicate((MEMBER, partner.address))
            owner.snapshot(MEMBER, values(1), 10)
            await until(lambda: owner.peers.counts["peer_copies_sent"] == 1, "the first copy")
            owner.snapshot(MEMBER, values(2), 20)
            await until(lambda: writing(base / "b.shm/copies/job.1.arena"), "the second copy")
        finally:
            partner.kill()
        async with Side(base, "b") as again:
            assert again.steps(MEMBER) == [10]
            assert again.copy(MEMBER, 10)[2] == state_bytes(1)
            owner.replicate((MEMBER, again.peers.address))
            await again.keeps(MEMBER, 20)
            assert again.copy(MEMBER, 20) == read(owner.paths.arena(MEMBER), 20)


async def test_an_owner_killed_in_the_midst_leaves_its_older_copy(base: Path) -> None:
    async with Side(base, "b") as partner:
        owner = Process(base, "a", peer_bytes_per_s=16 << 20)
        try:
            owner.say(snapshot=[MEMBER, 1, 10], replicate=[[MEMBER, partner.peers.address]])
            await partner.keeps(MEMBER, 10)
            owner.say(snapshot=[MEMBER, 2, 20])
            await until(lambda: writing(partner.paths.copies / "job.1.arena"), "the second copy")
        finally:
            owner.kill()
        await until(lambda: not writing(partner.paths.copies / "job.1.arena"), "the slot to be given back")
        assert partner.steps(MEMBER) == [10]
        async with Side(base, "a") as again:
            again.replicate((MEMBER, partner.peers.address))
            with Arena.open(again.paths.arena(MEMBER), owner=True) as arena:  # the dead agent's pin is undone
                assert [slot.pins for slot in arena.slots] == [0, 0]
            again.snapshot(MEMBER, values(3), 30)
            await partner.keeps(MEMBER, 30)


async def test_a_partner_that_comes_back_is_tried_again(base: Path) -> None:
    async with Side(base, "a") as owner:
        async with Side(base, "b") as partner:
            address = partner.peers.address
        owner.replicate((MEMBER, address))
        owner.snapshot(MEMBER, values(1), 10)
        await until(lambda: owner.peers.counts["peer_copies_failed"] >= 2, "a second failure")
        async with Side(base, "b", peer_listen=address) as partner:
            await partner.keeps(MEMBER, 10)


async def test_a_newer_snapshot_waits_for_the_one_on_its_way(base: Path) -> None:
    async with Side(base, "a", peer_bytes_per_s=64 << 20) as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await until(lambda: owner.peers.counts["peer_sent_bytes"] > 0, "the first copy's beginning")
        owner.snapshot(MEMBER, values(2), 20)
        await partner.keeps(MEMBER, 20)
        assert partner.steps(MEMBER) == [10, 20]


async def test_no_room_is_told_to_the_owner(base: Path) -> None:
    async with Side(base, "b") as partner, calling(partner) as peer:
        huge = 1 << 40  # its digests fit into a message, its bytes into no machine
        snapshot = dataclasses.replace(HELD, data_bytes=huge, digests=bytes(16 * (huge // CHUNK + 1)))
        code, details = await refusal(peer, snapshot)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "no arena of" in details and "more memory" in details
        assert list(partner.paths.copies.iterdir()) == []


def test_a_container_limit_counts_without_what_its_files_take(base: Path) -> None:
    machine = available_bytes(base / "none")
    (base / "memory.max").write_text("max\n")
    assert abs(available_bytes(base) - machine) < 1 << 30
    (base / "memory.max").write_text(f"{10 << 20}\n")
    (base / "memory.current").write_text(f"{9 << 20}\n")
    (base / "memory.stat").write_text(f"anon 5\nactive_file {2 << 20}\ninactive_file {1 << 20}\n")
    assert available_bytes(base) == 4 << 20
    with pytest.raises(ArenaError, match="4194304 bytes of memory are available; give this node more"):
        check_memory(base / "x", 5 << 20, base)


# ---------------------------------------------------------------- a peer that says what cannot be


def state_bytes(seed: int) -> bytes:
    """The data area of a slot that holds this state."""
    state = values(seed)
    _, tensors, nbytes = header(state, 0)
    data = bytearray(nbytes)
    for tensor in tensors:
        data[tensor.offset : tensor.offset + tensor.nbytes] = state[tensor.name]
    return bytes(data)


DATA, HEADER = state_bytes(1)[: CHUNK + 64], b'{"tensors":[],"state":null}'
CHUNKS = [DATA[:CHUNK], DATA[CHUNK:], HEADER]
HELD = SnapshotInfo(JOB, MEMBER, 0, "all", 10, 1, len(DATA), len(HEADER), b"".join(map(digest, CHUNKS)))
BLOCKS = [DATA[at : at + BLOCK_BYTES] for at in range(0, CHUNK, BLOCK_BYTES)] + CHUNKS[1:]


@contextlib.asynccontextmanager
async def calling(side: Side) -> AsyncIterator[wire.PeerCalls]:
    """The service of a side, as any client may call it."""
    async with wire.channel(side.peers.address) as channel:
        yield wire.PeerCalls(channel)


def end(held: SnapshotInfo = HELD) -> pb.PutMessage:
    return pb.PutMessage(finish=pb.Finish(digest=digest(held.digests)))


async def put(peer: wire.PeerCalls, *messages: Any) -> list[str]:
    """Say these, and hear out the answers."""
    call = peer.put()
    with contextlib.suppress(asyncio.InvalidStateError):  # it may end while we talk
        for message in messages:
            await call.write(wire.block(memoryview(message)) if isinstance(message, bytes) else message)
        await call.done_writing()
    said = [answer.WhichOneof("body") async for answer in call]
    return [kind for kind in said if kind != "working"]


async def heard(call: Any) -> str:
    """What the next answer says, once the partner has done it: on a crowded machine it says that it works."""
    while (kind := (await call.read()).WhichOneof("body")) == "working":
        pass
    return str(kind)


async def refusal(peer: wire.PeerCalls, first: SnapshotInfo | pb.PutMessage, *more: Any) -> tuple[Any, str]:
    """The code and the words that a Put is refused with."""
    opening = pb.PutMessage(snapshot=wire.message_of(first)) if isinstance(first, SnapshotInfo) else first
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await put(peer, opening, *more)
    return refused.value.code(), str(refused.value.details())


def but(**changes: Any) -> SnapshotInfo:
    return dataclasses.replace(HELD, **changes)


WRONG = bytes([BLOCKS[3][0] ^ 1]) + BLOCKS[3][1:]
NO_HEADER = but(header_bytes=2, digests=HELD.digests[:32] + digest(b"{}"))
IMPOSSIBLE: dict[str, tuple[str, list[Any]]] = {
    "a member's name that is a path": ("is not allowed", [but(member="../../x")]),
    "no member": ("is not allowed", [but(member="")]),
    "a job's name that is a path": ("name its own job", [but(job="a/b")]),
    "a negative step": ("Snapshot.step -1 is invalid", [but(step=-1)]),
    "a negative rank": ("Snapshot.rank -1 is invalid", [but(rank=-1)]),
    "a shard that is no word": ("is not a shard id", [but(shard="a shard")]),
    "a negative size": ("Snapshot.data_bytes -1 is invalid", [but(data_bytes=-1)]),
    "no header": ("are not possible", [but(header_bytes=0)]),
    "a header of 2 GiB": ("Snapshot.header_bytes 2147483648 is invalid", [but(header_bytes=2 << 30)]),
    "digests for another size": ("bytes of digests for 3 chunks", [but(digests=HELD.digests[:-1])]),
    "a block first": ("first message", [pb.PutMessage(block=b"x")]),
    "nothing first": ("first message", [pb.PutMessage()]),
    "a changed byte": (
        "chunk 0 (8388608 bytes at 0) is corrupted",
        [HELD, *BLOCKS[:3], WRONG, *BLOCKS[4:], end()],
    ),
    "swapped blocks": ("is corrupted", [HELD, BLOCKS[1], BLOCKS[0], *BLOCKS[2:], end()]),
    "a block across chunks": ("a block of", [HELD, *BLOCKS[:7], BLOCKS[7] + BLOCKS[8], BLOCKS[9], end()]),
    "an empty block": ("a block of 0 bytes", [HELD, b"", *BLOCKS, end()]),
    "an end too early": ("something other than a block", [HELD, *BLOCKS[:-1], end()]),
    "an end that is none": (
        "its digest is not the announced",
        [HELD, *BLOCKS, pb.PutMessage(finish=pb.Finish(digest=b"x"))],
    ),
    "a block for an end": ("its digest is not the announced", [HELD, *BLOCKS, b"x"]),
    "no end": ("ended the stream too early", [HELD, *BLOCKS]),
    "a header that describes nothing": (
        "no list of tensors",
        [NO_HEADER, *BLOCKS[:-1], b"{}", end(NO_HEADER)],
    ),
}


async def test_what_cannot_be_is_refused_and_leaves_nothing(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the partner's own words: an owner that was writing may hear of a broken stream only."""
    async with Side(base, "b") as partner, calling(partner) as peer:
        for what, (words, messages) in IMPOSSIBLE.items():
            caplog.clear()
            await refusal(peer, messages[0], *messages[1:])
            await until(lambda words=words: words in caplog.text, what)  # type: ignore[misc]
            assert list(partner.paths.copies.iterdir()) == [], what
        assert len(IMPOSSIBLE) == partner.peers.counts["peer_calls_refused"]
        opening = pb.PutMessage(snapshot=wire.message_of(HELD))
        assert await put(peer, opening, *BLOCKS, end()) == ["lacking", "stored"]
        assert partner.copy(MEMBER, 10) == (1, HEADER, DATA)


async def test_bytes_that_are_no_message_end_their_stream_only(base: Path) -> None:
    async with Side(base, "b") as partner, grpc.aio.insecure_channel(partner.peers.address) as channel:
        for method in ("Put", "Get", "Have", "Drop", "Echo"):
            call = channel.stream_stream(f"/{wire.SERVICE}/{method}")()
            with pytest.raises(grpc.aio.AioRpcError):
                await call.write(b"\xff\xff\xff")
                await call.done_writing()
                await call.read()
                raise await call._raise_for_status()
        async with calling(partner) as peer:
            opening = pb.PutMessage(snapshot=wire.message_of(HELD))
            assert await put(peer, opening, *BLOCKS, end()) == ["lacking", "stored"]


async def test_a_silent_owner_loses_its_stream(base: Path) -> None:
    async with Side(base, "b", peer_timeout_s=1.0) as partner, calling(partner) as peer:
        call = peer.put()
        await call.write(pb.PutMessage(snapshot=wire.message_of(HELD)))
        assert await heard(call) == "lacking"
        assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "silent for 1 s" in await call.details()
        assert list(partner.paths.copies.iterdir()) == []


async def test_the_same_owner_again_ends_its_former_stream(base: Path) -> None:
    async with Side(base, "b") as partner, calling(partner) as peer:
        opening = pb.PutMessage(snapshot=wire.message_of(HELD))
        stuck = peer.put()
        await stuck.write(opening)
        assert await heard(stuck) == "lacking"
        assert await put(peer, opening, *BLOCKS, end()) == ["lacking", "stored"]
        assert await stuck.code() != grpc.StatusCode.OK
        assert partner.copy(MEMBER, 10) == (1, HEADER, DATA)


async def test_more_streams_than_allowed_are_asked_to_come_again(base: Path) -> None:
    """Streams that say nothing while others are opened must not be given up meanwhile."""
    async with Side(base, "b", peer_timeout_s=PATIENCE_S) as partner, calling(partner) as peer:
        held = [but(member=f"job.{number}") for number in range(STREAMS_MAX + 1)]
        streams = [peer.put() for _ in held]
        for stream, one in zip(streams[:-1], held, strict=False):
            await stream.write(pb.PutMessage(snapshot=wire.message_of(one)))
            assert await heard(stream) == "lacking"
        code, details = await refusal(peer, held[-1])
        assert code == grpc.StatusCode.UNAVAILABLE and "are being received already" in details
        for stream in streams:
            stream.cancel()
        await until(lambda: not list(partner.paths.copies.iterdir()), "the slots to be given back")
