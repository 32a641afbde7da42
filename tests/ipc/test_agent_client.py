"""The agent client against a listener by hand: what an agent hears that was away for a while."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from holdfast.ipc.agent_client import AgentClient
from holdfast.ipc.frames import Decoder, encode
from holdfast.ipc.messages import rank as said
from tests.agent.support import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELLO = said.Hello(1, "j.1", 1, "h:1", "starting", 0, 0, -1, 0, None)
BEAT = said.Beat("starting", 0, 0)

READY, RUNNING, FINISHED = said.Ready(1, 0, 0, None, 0), said.Running(1, 0), said.Finished(1, 9)
STARTED, SNAPSHOT = said.Started(1, 0, 0.1, 0.1, 0.1), said.Snapshot(1, 0, 0, 0.1)


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
    client.send(said.Tracked(1), keep=True)
    agent = Agent(folder / "gate.sock")
    assert agent.hears("tracked") == ["tracked"]
    agent.end(client)
    for message, keep in ((READY, True), (RUNNING, False), (STARTED, False), (FINISHED, True)):
        client.send(message, keep=keep)
    agent = Agent(folder / "gate.sock")
    assert agent.hears("finished") == ["tracked", "ready", "running", "started", "finished"]
    agent.end(client)


def test_of_one_kind_only_the_newest_is_said_where_it_belongs(client: AgentClient, folder: Path) -> None:
    for message in (SNAPSHOT, READY, RUNNING, said.Snapshot(1, 1, 1, 0.1)):
        client.send(message, keep=message is not RUNNING)
    client.send(said.Broken(1, "last"))
    agent = Agent(folder / "gate.sock")
    assert agent.hears("broken") == ["ready", "running", "snapshot", "broken"]
    agent.end(client)
    client.send(said.RestoreFailed(1, "end"))
    agent = Agent(folder / "gate.sock")
    assert agent.hears("restore_failed") == ["ready", "snapshot", "restore_failed"]
    agent.end(client)
