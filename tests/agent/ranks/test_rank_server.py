"""The rank server with real sockets: who is let in, and what hostile bytes do (nothing)."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from agent.ranks.rank_server import RankServer
from holdfast.ipc.frames import FRAME_BYTES_MAX, Message, encode
from holdfast.ipc.messages.agent import AgentMessage, Interrupt, Return, Welcome
from holdfast.ipc.messages.fields import BadMessage, integer
from tests.agent.support import Frames, folder, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Host:
    """A node with one member: this very process."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.dropped: list[tuple[str, str]] = []
        self.gone: list[str] = []
        self.early: set[str] = set()

    def unnamed(self, member: str) -> bool:
        return member in self.early

    def admit(self, member: str, pid: int) -> str:
        if member != "job.1":
            return f"there is no member {member!r}"
        return "" if pid == os.getpid() else f"job.1 is process {os.getpid()}"

    def joined(self, member: str, frame: Message) -> list[AgentMessage]:
        integer(frame, "step")
        return [Welcome(1, 1.0, 5.0)]

    def receive(self, member: str, frame: Message) -> None:
        if frame["op"] == "bad":
            raise BadMessage("bad")
        self.heard.append(frame)

    def left(self, member: str) -> None:
        self.gone.append(member)

    def drop(self, kind: str, reason: str) -> None:
        self.dropped.append((kind, reason))


class Room:
    def __init__(self, path: Path) -> None:
        self.path, self.host = path / "gate.sock", Host()
        self.server = RankServer(self.path, self.host)

    async def connect(self) -> Frames:
        return await asyncio.to_thread(Frames, self.path)

    async def enter(self, **changes: Any) -> tuple[Frames, Message]:
        client = await self.connect()
        hello = {"op": "hello", "version": 1, "member": "job.1", "pid": os.getpid(), "step": 0}
        client.say(**{**hello, **changes})
        return client, await asyncio.to_thread(client.get)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    with folder() as path:
        room = Room(path)
        await room.server.open()
        yield room
        await room.server.close()
        assert not room.path.exists()


async def test_a_member_is_let_in_and_heard(room: Room) -> None:
    assert room.path.stat().st_mode & 0o777 == 0o600
    client, answer = await room.enter()
    assert answer["op"] == "welcome"
    client.say(op="beat")
    client.say(op="bad")
    client.say(op="beat")
    await until(lambda: len(room.host.heard) == 2, "two beats")
    assert [kind for kind, _ in room.host.dropped] == ["rank_message"]
    assert room.server.push("job.1", Interrupt(1, "", ""))
    assert (await asyncio.to_thread(client.get))["op"] == "interrupt"
    client.close()
    await until(lambda: room.host.gone == ["job.1"], "its leaving")
    assert not room.server.push("job.1", Interrupt(1, "", ""))


async def test_who_comes_before_the_launchers_word_is_let_in_after_it(room: Room) -> None:
    room.host.early.add("job.1")
    entering = asyncio.create_task(room.enter())
    await until(lambda: room.server.connections, "the connection")
    room.server.named()
    await asyncio.sleep(0.05)
    assert not entering.done()
    room.host.early.clear()
    room.server.named()
    client, answer = await entering
    assert answer["op"] == "welcome"
    client.say(op="beat")
    await until(lambda: room.host.heard, "a beat")
    client.close()


async def test_the_words_of_who_died_before_the_launchers_word_count(room: Room) -> None:
    room.host.early.add("job.1")
    client = await room.connect()
    client.say(op="raised", version=1, member="job.1", pid=os.getpid())
    await until(lambda: room.server.connections, "the connection")
    client.close()
    await until(lambda: not room.server.connections, "its leaving")
    room.host.early.clear()
    room.server.named()
    assert [message["op"] for message in room.host.heard] == ["raised"]


async def test_who_came_early_and_left_is_no_connection(room: Room) -> None:
    room.host.early.add("job.1")
    client = await room.connect()
    client.say(op="hello", version=1, member="job.1", pid=os.getpid(), step=0)
    await until(lambda: room.server.connections, "the connection")
    client.close()
    await until(lambda: not room.server.connections, "its leaving")
    room.host.early.clear()
    room.server.named()
    assert not room.server.push("job.1", Return(1))


async def test_who_does_not_wait_for_the_launchers_word_is_refused(room: Room) -> None:
    room.host.early.add("job.1")
    client = await room.connect()
    for _ in range(2):
        client.say(op="hello", version=1, member="job.1", pid=os.getpid(), step=0)
    assert await asyncio.to_thread(client.ended)
    client.close()
    assert [kind for kind, _ in room.host.dropped] == ["gate_connection"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"pid": 1}, "claims to be process 1"),
        ({"member": "job.2"}, "no member"),
        ({"member": 7}, "missing or of the wrong type"),
        ({"pid": True}, "claims to be process"),
        ({"version": 2}, "version 1"),
        ({"version": None}, "version 1"),
    ],
)
async def test_others_are_refused_with_the_reason(room: Room, changes: dict[str, Any], word: str) -> None:
    client, answer = await room.enter(**changes)
    assert answer["op"] == "refused"
    assert word in answer["reason"]
    assert await asyncio.to_thread(client.ended)
    client.close()
    assert room.host.dropped


async def test_a_child_that_claims_its_parents_pid_is_refused(room: Room) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        client = Frames(room.path)
        client.say(op="hello", version=1, member="job.1", pid=os.getppid(), step=0)
        os.write(write, client.get()["op"].encode())
        os._exit(0)
    answer = await asyncio.to_thread(os.read, read, 64)
    await asyncio.to_thread(os.waitpid, child, 0)
    os.close(read)
    os.close(write)
    assert answer == b"refused"


async def test_a_newer_connection_takes_the_place(room: Room) -> None:
    first, _ = await room.enter()
    second, _ = await room.enter()
    assert await asyncio.to_thread(first.ended)
    assert room.server.push("job.1", Return(1))
    assert (await asyncio.to_thread(second.get))["op"] == "return"
    assert room.host.gone == []
    first.close()
    second.close()


async def test_garbage_ends_its_own_connection_only(room: Room) -> None:
    good, _ = await room.enter()
    chance = random.Random(5)
    hostile = [
        b"\xff\xff\xff\xff",
        struct.pack(">I", FRAME_BYTES_MAX + 1) + b"x" * 100,
        struct.pack(">I", 4) + b"nope",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 100_000) + b"[" * 100_000,
        encode({"op": "beat"}),
        encode({"no": "op"}),
        encode({"op": {"a": 1}, "member": []}),
        *[struct.pack(">I", 64) + chance.randbytes(64) for _ in range(20)],
    ]
    for data in hostile:
        client = await room.connect()
        client.socket.sendall(data)
        assert await asyncio.to_thread(client.ended), data[:40]
        client.close()
    assert len(room.host.dropped) == len(hostile)
    silent = await room.connect()
    silent.socket.sendall(b"\0\0")
    good.say(op="beat")
    await until(lambda: room.host.heard, "the beat")
    assert room.server.connections == 2
    silent.close()
    good.close()


async def test_a_raised_report_needs_no_hello_and_is_acknowledged(room: Room) -> None:
    client = await room.connect()
    client.say(op="raised", version=1, member="job.1", pid=os.getpid(), exception="E", message="m")
    assert (await asyncio.to_thread(client.get))["op"] == "noted"
    assert [message["exception"] for message in room.host.heard] == ["E"]
    assert not room.server.connected("job.1")
    client.close()
