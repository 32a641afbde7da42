"""Provide real etcd for tests: one server for the session, keys of its own for each test, and a proxy that
breaks connections."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
import urllib.request
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.daemon.etcd.target import EtcdTarget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

Got = TypeVar("Got")


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[PrivateEtcd]:
    """One etcd for all tests that do not stop or damage it."""
    folder = tempfile.mkdtemp(dir="/dev/shm", prefix="hf-")
    server = PrivateEtcd(folder)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())
    shutil.rmtree(folder)


@pytest.fixture
async def own_server() -> AsyncIterator[PrivateEtcd]:
    """An etcd of this test's own, to be killed, stopped and wiped."""
    folder = tempfile.mkdtemp(dir="/dev/shm", prefix="hf-")
    async with PrivateEtcd(folder) as server:
        yield server
    shutil.rmtree(folder)


@pytest.fixture
async def etcd(etcd_server: PrivateEtcd) -> AsyncIterator[Etcd]:
    """A client of the session's server."""
    async with Etcd(etcd_server.target) as client:
        yield client


@pytest.fixture
def keys() -> Keyspace:
    """The keys of a cluster that no other test knows."""
    return Keyspace("t-" + uuid.uuid4().hex[:12])


def client_of(*endpoints: str, timeout_s: float = 10.0, try_timeout_s: float = 1.5) -> Etcd:
    """A client that tries the first endpoint first, and retries without random pauses."""
    target = EtcdTarget(endpoints, private=True)
    return Etcd(target, timeout_s=timeout_s, try_timeout_s=try_timeout_s, jitter=lambda: 0.0)


async def until(holds: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait until `holds` returns true. Fails the test with the message `what` when it does not in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"in vain: {what}"
        await asyncio.sleep(0.01)


async def gateway(endpoint: str, path: str, **body: Any) -> Any:
    """Call etcd without our client, by its own JSON gateway: /v3/<path>."""
    return await asyncio.to_thread(_post, f"http://{endpoint}/v3/{path}", body)


def _post(url: str, body: dict[str, Any]) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with opener.open(request, timeout=10) as answer:
        return json.load(answer)


def b64(text: str) -> str:
    """Encode a key or value in base64, as the JSON gateway requires."""
    return base64.b64encode(text.encode()).decode()


class Proxy:
    """Stands between a client and etcd. While `deaf`, requests go through and answers are lost."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.split(":")
        self._upstream = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.deaf = False
        self.swallowed_bytes = 0
        self.endpoint = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await until(lambda: not self._writers, "connections of the proxy end")

    def cut(self) -> None:
        """Break every connection; new ones are served."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        pair = {writer, up_writer}
        self._writers |= pair
        await asyncio.gather(self._pump(reader, up_writer, False), self._pump(up_reader, writer, True))
        self._writers -= pair

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        try:
            while data := await reader.read(65536):
                if answers and self.deaf:
                    self.swallowed_bytes += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the other side ended it; ours ends now
        finally:
            writer.transport.abort()


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    """A folder in memory, gone afterwards."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hf-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


async def first(awaitable: Awaitable[Got], timeout_s: float = 20.0) -> Got:
    """Await something and return its result. Fails the test when that takes too long."""
    async with asyncio.timeout(timeout_s):
        return await awaitable
