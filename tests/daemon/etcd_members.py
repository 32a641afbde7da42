"""Members of an etcd cluster as processes that a test can kill and start again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import urllib.error
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from controlplane.daemon.etcd.binary import clean_environment, find_binary
from controlplane.parent_death import with_parent_death_signal
from tests.daemon.etcd_fixtures import folder, gateway, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Different ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Member:
    """One etcd with flags of the test's choice; alone, or a part of a cluster."""

    def __init__(
        self, path: Path, *, name: str = "m0", peers: str = "", flags: list[str], scheme: str = "http"
    ) -> None:
        self.name, self.path = name, path
        client, peer = free_ports(2)
        self.endpoint = f"127.0.0.1:{client}"
        self.peer = f"http://127.0.0.1:{peer}"
        self.peers = peers
        self._flags, self._url = flags, f"{scheme}://{self.endpoint}"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        port = int(self.endpoint.split(":")[1])
        await until(lambda: _listens(port), f"{self.name} listens")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        argv = [
            *(find_binary().path, "--name", self.name, "--data-dir", str(self.path / self.name)),
            *("--listen-client-urls", self._url, "--advertise-client-urls", self._url),
            *("--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer),
            *("--initial-cluster", self.peers or f"{self.name}={self.peer}"),
            *("--logger", "zap", "--log-level", "error", "--log-outputs", "stderr"),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
            *self._flags,
        ]
        self._process = subprocess.Popen(
            with_parent_death_signal(argv, signal.SIGKILL),
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill it (SIGKILL). When this returns, the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def three_members() -> AsyncIterator[list[Member]]:
    """A cluster of three members on loopback, all of which listen. A leader may not be elected yet."""
    async with folder() as path, AsyncExitStack() as stack:
        members = [Member(path, name=f"m{n}", flags=[]) for n in range(3)]
        for member in members:
            member.peers = ",".join(f"{each.name}={each.peer}" for each in members)
            stack.callback(member.kill)
            member.start()
        for member in members:
            port = int(member.endpoint.split(":")[1])
            await until(lambda port=port: _listens(port), "members listen")  # type: ignore[misc]
        yield members


async def leader_of(members: list[Member]) -> Member:
    """Which member leads, as etcd itself reports. A cluster that is starting has no leader yet."""
    async with asyncio.timeout(30):
        while True:
            for member in members:
                status = await _status(member)
                if status and status.get("leader") == status["header"]["member_id"]:
                    return member
            await asyncio.sleep(0.05)


async def _status(member: Member) -> Any:
    try:
        return await gateway(member.endpoint, "maintenance/status")
    except (urllib.error.URLError, ConnectionError):
        return None
