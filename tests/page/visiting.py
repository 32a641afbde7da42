"""Serve the status page in this process on a real socket, and visit it with hand-written HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

from controlplane.access.authentication import Authenticator
from controlplane.access.tls import TlsFiles
from controlplane.core.records.events import JobSubmitted, MemberReport, NodeJoined
from controlplane.core.records.model import Cause, Failure, JobSpec, MemberPhase, MemberStatus
from controlplane.daemon.page.server import Page
from tests.security.authority import CLUSTER
from tests.security.serving import Served, serving

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from controlplane.access.denials import DenyList
    from controlplane.access.tokens import Tokens
    from controlplane.core.records.events import Elected
    from controlplane.daemon.leadership.leader_term import LeaderTerm

NODES, RANKS = 2, 2


@dataclasses.dataclass
class Reply:
    """An answer, as it was received."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """A minimal browser: it keeps its cookie and its CSRF token."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.port, self.context = port, context
        self.cookie = self.csrf = ""

    async def raw(self, data: bytes) -> bytes:
        """Send these bytes, and read until the other side hangs up."""
        reader, writer = await self.dial()
        try:
            writer.write(data)
            async with asyncio.timeout(20.0):
                with contextlib.suppress(ConnectionError):
                    return await reader.read(-1)
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, document: Any, **headers: str) -> Reply:
        known = {"content_type": "application/json"}
        if self.csrf:
            known["x_holdfast_csrf"] = self.csrf
        return await self.ask("POST", path, json.dumps(document).encode(), known | headers)

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """One request on a connection of its own. Headers as keywords; an empty one is left out."""
        known = {"host": f"localhost:{self.port}", "cookie": self.cookie, "connection": "close"} | headers
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in known.items() if value]
        if body:
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()
        reply = parsed(await self.raw(head + body))
        if cookie := reply.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return reply

    async def log_in(self, token: str) -> Reply:
        """Log in with a token, and keep the CSRF token that comes back."""
        reply = await self.post("/api/login", {"token": token})
        self.csrf = (await self.get("/api/session")).json()["csrf"]
        return reply

    @contextlib.asynccontextmanager
    async def live(self, last: str = "") -> AsyncIterator[Stream]:
        """The stream of server-sent events, behind the one with the id `last`."""
        reader, writer = await self.dial()
        lines = [f"GET /api/live HTTP/1.1\r\nhost: localhost:{self.port}", f"cookie: {self.cookie}"]
        lines += [f"last-event-id: {last}"] if last else []
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        stream = Stream(reader)
        try:
            await stream.begin()
            yield stream
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class Stream:
    """Reads server-sent events as they arrive."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.status = 0

    async def begin(self) -> None:
        async with asyncio.timeout(20):
            head = await self._reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split()[1])

    async def event(self, timeout_s: float = 20.0) -> tuple[str, str, Any]:
        """The next event's kind, number and document."""
        async with asyncio.timeout(timeout_s):
            while True:
                fields = await self._block()
                if "data" in fields:
                    return fields["event"], fields.get("id", ""), json.loads(fields["data"])

    async def patch(self, table: str, key: str) -> Any:
        """The next row of this table and key."""
        async with asyncio.timeout(20.0):
            while True:
                kind, _, document = await self.event()
                if kind == "patch" and key in document.get(table, {}):
                    return document[table][key]

    async def _block(self) -> dict[str, str]:
        """Read one event: the page sends each event as one chunk."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        assert size, "the stream has ended"
        data = (await self._reader.readexactly(size + 2))[:-2].decode()
        return dict(line.split(": ", 1) for line in data.splitlines() if ": " in line)


def parsed(data: bytes) -> Reply:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Reply(int(first.split()[1]), headers, body)


@dataclasses.dataclass
class Paged:
    """A served page: its coordinator, and a visitor."""

    served: Served
    page: Page
    visitor: Visitor

    @property
    def leader_term(self) -> LeaderTerm:
        assert self.served.front.leader_term is not None
        return self.served.front.leader_term


@contextlib.asynccontextmanager
async def paged(
    tokens: Tokens | None = None,
    tls: TlsFiles | None = None,
    *,
    leads: bool = True,
    public: bool = False,
    context: ssl.SSLContext | None = None,
    deny: DenyList | None = None,
    diagnose_every_s: float = 0.0,
    elected: Elected | None = None,
) -> AsyncIterator[Paged]:
    """Serve a page; with `leads` of a leader, from the state in `elected` or from an empty one."""
    tls = tls or TlsFiles()
    async with serving(leads=leads, diagnose_every_s=diagnose_every_s, elected=elected) as served:
        asks = Authenticator(CLUSTER, tls.verifies, tokens, deny=deny)
        page = Page(served.front, ("127.0.0.1", 0), tls, asks, public=public)
        page.start()
        try:
            yield Paged(served, page, Visitor(page.port, context))
        finally:
            await page.close()


async def job(leader_term: LeaderTerm, name: str = "j", nodes: int = NODES) -> None:
    """A job on nodes that have joined: its ranks are ordered, and nothing obeys."""
    for number in range(nodes):
        joined = NodeJoined(f"n{number}", 1, "l", "127.0.0.1", slots=RANKS, port=29500, members=())
        await leader_term.loop.ask(joined)
    secret = (("TOKEN", "in-the-environment"),)
    spec = JobSpec(name, ("train.py", "--key", "in-the-arguments"), "/", secret, nodes, nodes, RANKS)
    await leader_term.loop.ask(JobSubmitted(spec))
    for _ in range(200):
        if leader_term.core.state.jobs["j"].members:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no rank was ordered")


async def die(leader_term: LeaderTerm, name: str = "j") -> str:
    """Report that the first rank of a job was killed. Returns its node."""
    member = min(leader_term.core.state.jobs[name].members.values(), key=lambda each: each.rank)
    status = MemberStatus(member.name, name, MemberPhase.STARTING, elastic=True, pid=7)
    failure = Failure(Cause.SIGNALED, "killed by SIGKILL", signal=9)
    for seq, phase in enumerate((MemberPhase.STARTING, MemberPhase.EXITED), 1):
        gone = failure if phase is MemberPhase.EXITED else None
        told = dataclasses.replace(status, phase=phase, failure=gone)
        leader_term.post(MemberReport(member.node, 1, seq, told))
    return member.node


async def until(look: Any, timeout_s: float = 20.0) -> None:
    """Poll until it is true."""
    ends = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < ends, "waited in vain"
        await asyncio.sleep(0.01)
