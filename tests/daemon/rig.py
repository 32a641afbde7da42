"""Support the daemon's tests: real coordinator processes, and an agent whose messages the test writes
itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from controlplane.core.records.events import NodeBeat, NodeJoined
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.sdk.zygote import Forked, daemons

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import MemberStatus
    from controlplane.wire.codec import AgentEvent

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
_SERVE = """
import json, sys
from controlplane.daemon.coordinator import serve
from controlplane.settings import CoordinatorSettings
sys.exit(serve(CoordinatorSettings(**json.loads(sys.argv[1]))))
"""


async def until(look: Callable[[], T], timeout_s: float = 30.0) -> T:
    """Poll until a value is true, and return it. Fails the test after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
    return value


class Coordinator:
    """One coordinator process. `listen` is known once it serves."""

    def __init__(self, folder: Path, etcd: str, cluster: str, name: str = "a", **settings: Any) -> None:
        self.folder, self.name = folder, name
        self.address_file = folder / f"{name}.json"
        self.journal = folder / f"{name}.jsonl"
        self.settings = {
            "etcd": etcd,
            "etcd_private": True,
            "cluster": cluster,
            "listen": "127.0.0.1:0",
            "address_file": str(self.address_file),
            "journal": str(self.journal),
            **settings,
        }
        self.listen = self.metrics = ""
        self._process: Forked | None = None

    def spawn(self) -> Forked:
        self.address_file.unlink(missing_ok=True)
        log = self.folder / f"{self.name}.log"
        forking = daemons("controlplane.daemon.coordinator")
        self._process = forking.run(_SERVE, json.dumps(self.settings), err=log, env=os.environ)
        return self._process

    async def start(self) -> Coordinator:
        process = self.spawn()
        await until(lambda: self.address_file.exists() or process.poll() is not None)
        assert process.poll() is None, self.log()
        document = json.loads(self.address_file.read_text())
        self.listen, self.metrics = document["listen"], document["metrics"]
        self.settings["listen"] = self.listen
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit code. A process that a test has stopped goes on
        first: it would not hear the signal."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        return self._process.wait(20)

    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def samples(self) -> dict[str, float]:
        """Every series of /metrics."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    async def leads(self) -> None:
        await until(lambda: self.samples()["holdfast_leader"] == 1)


class Agent:
    """An agent's side of one stream. The test itself writes and reads its messages."""

    def __init__(
        self, address: str, node: str = "n1", incarnation: int = 1, channel: grpc.aio.Channel | None = None
    ) -> None:
        self.node, self.incarnation, self.seq = node, incarnation, 0
        self._writing = asyncio.Lock()
        self._channel = channel or grpc.aio.insecure_channel(
            address, options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.call = self._channel.stream_stream(
            "/holdfast.control.v1.Control/Link",
            request_serializer=None,
            response_deserializer=pb.CoordinatorMessage.FromString,
        )()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()

    def joined(
        self, members: tuple[MemberStatus, ...] = (), launcher: str = "l1", slots: int = 4
    ) -> NodeJoined:
        return NodeJoined(
            self.node, self.incarnation, launcher, "127.0.0.1", slots=slots, port=29500, members=members
        )

    async def hello(
        self, to: str, members: tuple[MemberStatus, ...] = (), **changes: Any
    ) -> pb.CoordinatorMessage:
        """Say hello, return the answer."""
        term_seen = changes.pop("term_seen", 0)
        message = codec.hello(self.joined(members), to, term_seen)
        for name, value in changes.items():
            setattr(message.hello, name, value)
        await self.send(message.SerializeToString())
        return await self.read()

    async def send(self, data: bytes) -> None:
        """Write to the stream, one message at a time: grpc breaks a stream that two tasks write to at
        once."""
        async with self._writing:
            await self.call.write(data)

    async def tell(self, event: AgentEvent) -> None:
        await self.send(codec.to_coordinator(event).SerializeToString())

    async def beat(self, *members: MemberStatus) -> None:
        self.seq += 1
        await self.tell(NodeBeat(self.node, self.incarnation, self.seq, 29500, members))

    async def read(self, timeout_s: float = 20.0) -> pb.CoordinatorMessage:
        """The next message; fails at the stream's end."""
        async with asyncio.timeout(timeout_s):
            message = await self.call.read()
        assert message is not grpc.aio.EOF, f"{await self.call.code()} {await self.call.details()}"
        answer: pb.CoordinatorMessage = message
        return answer

    async def order(self, kind: type[T], timeout_s: float = 20.0) -> T:
        """Read until an order of this kind arrives, and return it."""
        while True:
            order = codec.order_from(await self.read(timeout_s), self.node)
            if isinstance(order, kind):
                return order

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """Read to the end of the stream, and return its status and details."""
        async with asyncio.timeout(20):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:
                pass
            return await self.call.code(), await self.call.details()
