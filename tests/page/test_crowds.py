"""One visitor costs the others nothing: streams, guesses, logins and connections are counted by caller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import struct
from typing import TYPE_CHECKING

import pytest
import uvloop

from controlplane.access.authentication import Authenticator
from controlplane.daemon.page import admission, sessions
from controlplane.daemon.page.admission import RateLimiter, Visit, leaving, network
from controlplane.daemon.page.http import HttpRefused
from controlplane.daemon.page.sessions import Sessions
from tests.page.test_fuzz import ODD, WHOLE
from tests.page.visiting import Paged, Visitor, job, paged, until
from tests.security.fuzz.messages import damage

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.tokens import Tokens
    from tests.security.authority import Authority

STREAMS, GUESSERS = 700, 8


async def _opened(visitor: Visitor) -> tuple[int, asyncio.StreamWriter]:
    """Ask for the stream of news: the status, 0 when we were hung up on, and the connection."""
    reader, writer = await visitor.dial()
    head = f"GET /api/live HTTP/1.1\r\nhost: localhost:{visitor.port}\r\ncookie: {visitor.cookie}\r\n\r\n"
    try:
        writer.write(head.encode())
        async with asyncio.timeout(30):
            return int((await reader.readuntil(b"\r\n\r\n")).split()[1]), writer
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0, writer


async def _closed(held: list[tuple[int, asyncio.StreamWriter]]) -> None:
    for _, writer in held:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_the_streams_of_one_user_lock_nobody_out(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found, contextlib.AsyncExitStack() as stack:
        await job(found.leader_term)
        greedy = Visitor(found.page.port)
        await greedy.log_in(known["viewer"])
        held: list[tuple[int, asyncio.StreamWriter]] = []
        stack.push_async_callback(_closed, held)
        for _ in range(STREAMS // 20):
            held += await asyncio.gather(*(_opened(greedy) for _ in range(20)))
        assert {status for status, _ in held} == {200, 429}
        visits = found.page._listener.visits
        await until(lambda: len(visits) <= admission.OF_ONE_MAX)
        assert (await found.visitor.log_in(known["operator"])).status == 200
        for _ in range(10):
            assert (await found.visitor.get("/api/state")).status == 200
        async with found.visitor.live() as stream:
            assert stream.status == 200 and (await stream.event())[0] == "state"


async def test_guesses_keep_no_rightful_login_out(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        statuses: list[int] = []

        async def guess(number: int) -> None:
            while True:
                reply = await found.visitor.post("/api/login", {"token": f"{number}{len(statuses):040}"})
                statuses.append(reply.status)

        guessing = [asyncio.create_task(guess(number)) for number in range(GUESSERS)]
        await until(lambda: 429 in statuses)
        rightful = []
        for number in range(10):
            name = ("operator", "viewer", "other", "restricted")[number % 4]
            rightful.append((await Visitor(found.page.port).log_in(known[name])).status)
        assert rightful == [200] * 10
        assert set(statuses) <= {401, 429}
        for each in guessing:
            each.cancel()
        await asyncio.gather(*guessing, return_exceptions=True)


def test_the_logins_of_one_user_end_nobody_elses(tokens: Tokens, known: dict[str, str]) -> None:
    now = [0.0]
    made = Sessions(Authenticator("c1", tokens=tokens), lambda: now[0])
    mine, _ = made.log_in(known["viewer"], "10.0.0.1")
    for _ in range(2 * sessions.SESSIONS_MAX):
        now[0] += 1.0
        made.log_in(known["operator"], "10.0.0.2")
    assert made.find(mine) is not None
    with pytest.raises(HttpRefused, match="too often"):
        for _ in range(100):
            made.log_in(known["operator"], "10.0.0.2")
    assert made.log_in(known["viewer"], "10.0.0.2")


def test_a_few_tries_a_second_and_as_many_for_everybody_else() -> None:
    paces = RateLimiter(5.0, keys_max=10)
    assert sum(paces.allow("a", 0.0) for _ in range(100)) == 5
    assert paces.allow("b", 0.0)
    assert sum(paces.allow("a", 1.0) for _ in range(100)) == 5
    assert sum(paces.allow(f"c{number}", 1.0) for number in range(1000)) < 30, "many names are one"
    assert paces.allow("d", 10.0), "those who have rested are forgotten"


def test_whoever_has_most_leaves_first() -> None:
    visits = [Visit("10.0.0.1") for _ in range(admission.STRANGERS_MAX - 1)]
    visits += [Visit("10.0.0.9")]
    assert leaving(visits) is None
    assert leaving([visits[-1], *visits[:-1], Visit("10.0.0.1")]) is visits[0]
    greedy = [Visit("10.0.0.1", "viewer v") for _ in range(admission.OF_ONE_MAX)]
    assert leaving([*visits, *greedy]) is None, "strangers and those who are known have rooms of their own"
    assert leaving([*greedy, Visit("10.0.0.7", "viewer v")]) is greedy[0]
    crowd = [Visit("10.0.0.1", f"viewer v{n // 2}") for n in range(admission.KNOWN_MAX - 50)]
    assert leaving([*crowd, *greedy[:50]]) is None
    assert leaving([*crowd, *greedy[:50], Visit("10.0.0.1", "viewer w")]) is greedy[0]


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1:2", "2001:db8::"),
        ("fe80::1%eth0", "fe80::"),
        ("?", "?"),
    ],
)
def test_an_address_is_one_callers(address: str, same: str) -> None:
    assert network(address) == same


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_strangers_ask_writes_no_traceback(
    tokens: Tokens,
    known: dict[str, str],
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    run: Callable[..., None],
) -> None:
    async def visit() -> None:
        context = ssl.create_default_context(cafile=str(authority.ca))
        async with paged(tokens, authority.issue("page").tls(), public=True, context=context) as found:
            await job(found.leader_term)
            await _disturb(found)
            assert (await found.visitor.get("/api/state")).status == 200
            assert (await found.visitor.log_in(known["viewer"])).status == 200
            await until(lambda: not found.page._listener.visits)

    with caplog.at_level(logging.WARNING):
        run(visit())
    told = [record for record in caplog.records if record.exc_info or record.name == "asyncio"]
    assert not told, caplog.text


async def _disturb(found: Paged) -> None:
    rng = random.Random(20261122)
    numbers = b"GET /api/incidents/j/" + b"9" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
    asked = [*ODD, *WHOLE, numbers, *(damage(rng.choice(WHOLE), rng) for _ in range(20))]
    for each in asked:
        for leave in (_hang_up, _reset, _half, _fall_silent):
            await leave(found.visitor, each)
    port = found.page.port
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\x16\x03\x03\xff\xff"):
        plain = Visitor(port)
        for leave in (_hang_up, _reset):
            await leave(plain, data)
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(admission.STRANGERS_MAX + 40)]
    await _closed([(0, writer) for _, writer in crowd])


async def _hang_up(visitor: Visitor, data: bytes) -> None:
    _, writer = await visitor.dial()
    writer.write(data)
    writer.close()


async def _reset(visitor: Visitor, data: bytes) -> None:
    _, writer = await visitor.dial()
    writer.write(data)
    linger = struct.pack("ii", 1, 0)  # the kernel says RST where it would say goodbye
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def _half(visitor: Visitor, data: bytes) -> None:
    """Hear the first bytes of the answer, and go."""
    reader, writer = await visitor.dial()
    writer.write(data)
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(0.05):
            await reader.read(10)
    writer.transport.abort()


async def _fall_silent(visitor: Visitor, data: bytes) -> None:
    _, writer = await visitor.dial()
    writer.write(data[: len(data) // 2])
    writer.close()
