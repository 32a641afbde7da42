"""Requests that are none, by the hundreds: each ends its own connection at most, and nobody's else."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from tests.page.visiting import Visitor, job, paged, until
from tests.security.fuzz.messages import damage

if TYPE_CHECKING:
    import pytest

    from controlplane.access.tokens import Tokens

SEED, REQUESTS, AT_ONCE = 20261, 600, 16
WHOLE = (
    b"GET /jobs HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip\r\n\r\n",
    b'GET /static/app.js HTTP/1.1\r\nhost: localhost\r\nif-none-match: "x"\r\n\r\n',
    b"GET /api/state HTTP/1.1\r\nhost: localhost\r\ncookie: holdfast-1=x; a=b\r\n\r\n",
    b"GET /api/live HTTP/1.1\r\nhost: localhost\r\nlast-event-id: ab-12\r\n\r\n",
    b"GET /api/incidents/j/1?x=%41&y=1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'content-length: 14\r\n\r\n{"token": "x"}',
    b"POST /api/act/drain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'transfer-encoding: chunked\r\n\r\n10\r\n{"node": "n0"}  \r\n0\r\n\r\n',
)
ODD = (
    *(b"", b"\r\n" * 100, b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 5000),
    *(b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n", b"GET // HTTP/1.1\r\nhost: x\r\n\r\n"),
    b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"GET /%ff%fe%00/..%2f..%2f HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /api/jobs/%00 HTTP/1.1\r\nhost: [::1\r\n\r\n",
    b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\ncookie: " + b"=;" * 4000 + b"\r\n\r\n",
)


async def _statuses(visitor: Visitor, data: bytes) -> list[int]:
    """Send it, say that no more comes, and hear what is said: the status of every answer."""
    reader, writer = await visitor.dial()
    said = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(60):
            while part := await reader.read(1 << 16):
                said += part
                if b"text/event-stream" in said:
                    break
    writer.close()
    lines = [line for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return [int(line.split()[1]) for line in lines]


async def test_no_request_breaks_the_page(tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(SEED)
    made = [damage(rng.choice(WHOLE), rng) for _ in range(REQUESTS)]
    async with paged(tokens, public=True) as found:
        await job(found.leader_term)
        seen: set[int] = set()
        everything = [*ODD, *WHOLE, *made]
        for begin in range(0, len(everything), AT_ONCE):
            asked = [_statuses(found.visitor, each) for each in everything[begin : begin + AT_ONCE]]
            for statuses in await asyncio.gather(*asked):
                seen.update(statuses)
        assert {200, 400, 404} <= seen
        assert not {status for status in seen if status >= 500} - {501}  # a coding that is none of HTTP's
        assert (await found.visitor.get("/api/state")).status == 200
        await until(lambda: len(found.page._listener.visits) == 0)
    assert "the page failed" not in caplog.text and "never retrieved" not in caplog.text
