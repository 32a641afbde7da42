"""The agent client against a listener by hand: what an agent hears that was away for a while."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from holdfast.ipc.agent_client import AgentClient
from holdfast.ipc.frames import Decoder, encode
from holdfast.ipc.messages.rank import Beat, Hello
from tests.agent.support import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELLO = Hello(1, "j.1", 1, "h:1", "starting", 0, 0, -1, 0, None)
BEAT = Beat("starting", 0, 0)


class Agent:
    """One life of an agent: it greets who comes, and notes what it hears."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(30.0)
            self._connection, _ = listener.accept()
        self._connection.settimeout(30.0)
        self._decoder = Decoder()

    def hears(self, last: str) -> list[str]:
        """The kinds of the frames after the hello, beats apart, up to this one."""
        welcome = {"op": "welcome", "version": 1, "beat_interval_s": 0.05, "process_timeout_s": 5}
        self._connection.sendall(encode(welcome))
        heard: list[str] = []
        while last not in heard:
            data = self._connection.recv(65536)
            assert data, heard
            heard += [message["op"] for message in self._decoder.feed(data) if message["op"] != "beat"]
        assert heard[0] == "hello"
        return heard[1:]

    def end(self, client: AgentClient) -> None:
        """It is gone, and the rank has seen that."""
        self._connection.close()
        until_sync(lambda: not client.inodes(), "the rank's end of the connection")


@pytest.fixture
def client(folder: Path) -> Iterator[AgentClient]:
    made = AgentClient(str(folder / "gate.sock"), lambda: HELLO, lambda: BEAT, lambda _: False)
    made.start()
    yield made
    made.close()


def test_an_agent_that_was_away_hears_all_in_its_order(client: AgentClient, folder: Path) -> None:
    """What became of a rank last is what it hears last: else one that has finished runs for ever."""
    client.say({"op": "tracked", "shard": "all"}, keep=True)
    agent = Agent(folder / "gate.sock")
    assert agent.hears("tracked") == ["tracked"]
    agent.end(client)
    for op, keep in (("ready", True), ("running", False), ("started", False), ("finished", True)):
        client.say({"op": op}, keep=keep)
    agent = Agent(folder / "gate.sock")
    assert agent.hears("finished") == ["tracked", "ready", "running", "started", "finished"]
    agent.end(client)


def test_of_one_kind_only_the_newest_is_said_where_it_belongs(client: AgentClient, folder: Path) -> None:
    for op in ("snapshot", "ready", "running", "snapshot"):
        client.say({"op": op}, keep=op != "running")
    client.say({"op": "last"})
    agent = Agent(folder / "gate.sock")
    assert agent.hears("last") == ["ready", "running", "snapshot", "last"]
    agent.end(client)
    client.say({"op": "end"})
    agent = Agent(folder / "gate.sock")
    assert agent.hears("end") == ["ready", "snapshot", "end"]
    agent.end(client)
